"""`python manage.py test`: as tests of any Django project are written."""

import asyncio
import json
from typing import Any

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from project.asgi import application

from chat.graph import graph
from chat.models import Conversation
from holdfast.django import DjangoCheckpointer
from holdfast.django.models import Checkpoint, Thread


def post(client: Any, url: str, **body: Any) -> Any:
    """What a request is answered with."""
    return client.post(url, json.dumps(body), content_type="application/json")


class TalkTest(TestCase):
    """Each test is a transaction that is rolled back; runs and their threads are a part of it."""

    def test_a_conversation_with_an_interrupt(self) -> None:
        number = post(self.client, "/conversations/", title="Printer").json()["conversation"]
        told = post(self.client, f"/conversations/{number}/say/", text="it is on fire").json()
        self.assertEqual(told["asks"], ["Answer 'it is on fire'?"])
        told = post(self.client, f"/conversations/{number}/approve/", by="Kim").json()
        self.assertEqual(told["messages"], ["it is on fire", "approved by Kim", "answer 2"])
        self.assertEqual(self.client.get(f"/conversations/{number}/").json(), told)

    def test_nothing_of_other_tests_is_there(self) -> None:
        self.assertEqual(list(DjangoCheckpointer().threads()), [])
        self.assertFalse(Thread.objects.exists())
        graph().invoke({"messages": ["left behind?"]}, {"configurable": {"thread_id": "left"}})

    test_nor_of_the_other_way_round = test_nothing_of_other_tests_is_there

    def test_deleting_a_conversation_deletes_its_thread(self) -> None:
        conversation = Conversation.objects.create(title="Printer")
        graph().invoke({"messages": ["hello"]}, conversation.thread.config)
        conversation.delete()
        self.assertEqual((Thread.objects.count(), Checkpoint.objects.count()), (0, 0))

    def test_deleting_a_thread_deletes_its_conversation(self) -> None:
        conversation = Conversation.objects.create(title="Printer")
        graph().invoke({"messages": ["hello"]}, conversation.thread.config)
        DjangoCheckpointer().delete_thread(conversation.thread.thread)
        self.assertEqual((Conversation.objects.count(), Checkpoint.objects.count()), (0, 0))

    async def test_async_code_is_in_the_same_transaction(self) -> None:
        await graph().ainvoke({"messages": ["hello"]}, {"configurable": {"thread_id": "async"}})
        self.assertEqual([info.thread async for info in DjangoCheckpointer().athreads()], ["async"])
        self.assertTrue(await sync_to_async(lambda: connection.in_atomic_block)())


class RequestTest(TransactionTestCase):
    """Requests as they are, each a transaction of its own."""

    def test_a_request_that_fails_leaves_no_checkpoint(self) -> None:
        number = post(self.client, "/conversations/", title="Printer").json()["conversation"]
        post(self.client, f"/conversations/{number}/say/", text="one")
        with self.assertRaisesMessage(RuntimeError, "something else"):
            post(self.client, f"/conversations/{number}/say/", text="two", fail=True)
        self.assertEqual(self.client.get(f"/conversations/{number}/").json()["messages"], ["one"])

    def test_a_request_that_succeeds_leaves_one(self) -> None:
        number = post(self.client, "/conversations/", title="Printer").json()["conversation"]
        post(self.client, f"/conversations/{number}/say/", text="one")
        post(self.client, f"/conversations/{number}/approve/", by="Kim")
        messages = self.client.get(f"/conversations/{number}/").json()["messages"]
        self.assertEqual(messages, ["one", "approved by Kim", "answer 2"])

    def test_twenty_async_requests_at_once(self) -> None:
        """Through ASGI, as a server has it: each request in a thread, and on a connection, of its own."""
        with transaction.atomic():
            numbers = [Conversation.objects.create(title=str(number)).pk for number in range(20)]

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(
                *(asked(f"/conversations/{number}/say-async/", text=f"hello {number}") for number in numbers)
            )

        told = asyncio.run(all_of_them())
        self.assertEqual([each["messages"] for each in told], [[f"hello {number}"] for number in numbers])
        self.assertEqual(len(list(DjangoCheckpointer().threads())), 20)


async def asked(path: str, **body: Any) -> Any:
    """What the ASGI application answers."""
    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"localhost")], "query_string": b""}
    server: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]
    await server.send_input({"type": "http.request", "body": json.dumps(body).encode()})
    assert (await server.receive_output(60))["status"] == 200
    answer = await server.receive_output(60)
    await server.wait()
    return json.loads(answer["body"])
