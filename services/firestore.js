// A Firestore for tests: the documents of @firestore-emulator/server, and what that one lacks and holdfast leans on.
//
// Added here, as Google's documentation describes it: commits that are made whole or not at all, preconditions on
// times of updates, transactions that are aborted when something they read was changed, reads at an earlier time,
// queries in the order of names with cursors, limits on sizes, and data that is there after a restart. It is our
// reading of that documentation and no more: what the real service does under load, it can't show.
//
//   NODE_PATH=…/node_modules node firestore.js PORT FILE [fast]

const fs = require("node:fs");
const crypto = require("node:crypto");
const { Server, ServerCredentials, status } = require("@grpc/grpc-js");
const { FirestoreState } = require("@firestore-emulator/server");
const wire = require("@firestore-emulator/proto/dist/google/firestore/v1/firestore");

const LONGEST_NAME = 1500; // bytes of a document's id
const LARGEST_DOCUMENT = 1 << 20;
const LARGEST_REQUEST = 10 << 20;
const MOST_WRITES = 500;
const REMEMBERED = 60e6; // microseconds for which a read at an earlier time is possible
const [EQUAL, ARRAY_CONTAINS, IN, ARRAY_CONTAINS_ANY] = [5, 7, 8, 9]; // StructuredQuery.FieldFilter.Operator
const MOST_ALTERNATIVES = 30;

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const stamp = (time) => ({ seconds: Math.floor(time / 1e6), nanos: (time % 1e6) * 1000 });
const moment = (stamp) => stamp.seconds * 1e6 + Math.round(stamp.nanos / 1000);

// Values as text, to be compared: those of a document's field, and those of a query.
const stored = ({ type, value }) => JSON.stringify([type, value]);
const SCALARS = ["string_value", "integer_value", "boolean_value", "double_value", "null_value"];
const wanted = (value) => {
  const type = SCALARS.find((name) => value[`has_${name}`]);
  if (!type) throw new Refused(status.UNIMPLEMENTED, "only scalars are searched for");
  return JSON.stringify([type, type === "null_value" ? null : value[type]]);
};

class Documents {
  constructor() {
    this.state = new FirestoreState();
    this.times = new Map(); // path -> [created, updated], of documents that exist
    this.past = new Map(); // path -> [{until, document, times}], what was there before
    this.known = new Map(); // path of a collection -> Set of paths
    this.clock = 0;
  }

  now() {
    this.clock = Math.max(this.clock + 1, Date.now() * 1000);
    return this.clock;
  }

  // A document as it was at a time; null if there was none.
  at(path, time = Infinity) {
    for (const was of this.past.get(path) ?? []) {
      if (was.until > time) return was.times && { document: was.document, times: was.times };
    }
    const times = this.times.get(path);
    return times ? { document: this.state.getDocument(path), times } : null;
  }

  check(write) {
    const path = write.has_delete ? write.delete : write.update.name;
    const id = path.slice(path.lastIndexOf("/") + 1);
    if (Buffer.byteLength(id) > LONGEST_NAME || id === "" || id === "." || id === ".." || /^__.*__$/.test(id)) {
      throw new Refused(status.INVALID_ARGUMENT, `a document can't be named ${JSON.stringify(id.slice(0, 80))}`);
    }
    if (write.has_update && write.update.serialize().length > LARGEST_DOCUMENT) {
      throw new Refused(status.INVALID_ARGUMENT, `${path} is larger than ${LARGEST_DOCUMENT} bytes`);
    }
    if (!write.has_current_document) return;
    const times = this.times.get(path);
    const { current_document: condition } = write;
    if (condition.has_exists && condition.exists && !times) {
      throw new Refused(status.NOT_FOUND, `No document to update: ${path}`);
    }
    if (condition.has_exists && !condition.exists && times) {
      throw new Refused(status.ALREADY_EXISTS, `Document already exists: ${path}`);
    }
    if (condition.has_update_time && times?.[1] !== moment(condition.update_time)) {
      throw new Refused(status.FAILED_PRECONDITION, `the stored version of ${path} is another one`);
    }
  }

  make(writes, time) {
    for (const write of writes) {
      const path = write.has_delete ? write.delete : write.update.name;
      const document = this.state.getDocument(path);
      const times = this.times.get(path);
      const past = (this.past.get(path) ?? []).filter((was) => was.until > time - REMEMBERED);
      // Its fields are never changed, but replaced.
      const copy = Object.assign(Object.create(Object.getPrototypeOf(document)), document);
      this.past.set(path, [...past, { until: time, document: copy, times }]);
      if (write.has_delete) {
        this.times.delete(path);
        if (times) document.delete();
        continue;
      }
      const collection = path.slice(0, path.lastIndexOf("/"));
      if (!this.known.has(collection)) this.known.set(collection, new Set());
      this.known.get(collection).add(path);
      this.times.set(path, [times?.[0] ?? time, time]);
      if (!write.has_update_mask) document.fields = {}; // all of it is replaced
      this.state.writeV1Document(new Date(Math.floor(time / 1000)), write);
    }
    this.clock = Math.max(this.clock, time);
  }

  query(parent, query, time) {
    const { order_by, from, start_at, end_at, limit, where } = query;
    if (from.length !== 1 || from[0].all_descendants) throw new Refused(status.UNIMPLEMENTED, "one collection at a time");
    const fields = order_by.filter((order) => order.field.field_path !== "__name__");
    if (order_by.some((order) => order.direction > 1) && !fields.length) {
      throw new Refused(status.UNIMPLEMENTED, "by name, documents come in ascending order");
    }
    if (query.has_end_at || query.offset) throw new Refused(status.UNIMPLEMENTED, `offset or end_at ${end_at}`);
    const filters = !query.has_where ? [] : where.has_field_filter ? [where.field_filter] : all(where.composite_filter);
    const paths = [...(this.known.get(`${parent}/${from[0].collection_id}`) ?? [])];
    let found = paths.map((path) => ({ path, it: this.at(path, time) })).filter(({ it }) => it);
    found = found.filter(({ it }) => filters.every((filter) => passes(it.document, filter)));
    found.sort((a, b) => (a.path < b.path ? -1 : 1));
    for (const { field, direction } of fields.reverse()) {
      const of = ({ it }) => it.document.getField(field.field_path)?.value;
      found = found.filter((one) => of(one) !== undefined);
      found.sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (direction === 2 ? -1 : 1));
    }
    if (query.has_start_at) {
      if (fields.length) throw new Refused(status.UNIMPLEMENTED, "cursors are names");
      const name = start_at.values[0].reference_value;
      found = found.filter(({ path }) => (start_at.before ? path >= name : path > name));
    }
    return query.has_limit ? found.slice(0, limit.value) : found;
  }
}

function all(composite) {
  if (composite.op !== 1) throw new Refused(status.UNIMPLEMENTED, "only and");
  return composite.filters.map((filter) => filter.field_filter);
}

function passes(document, filter) {
  const field = document.getField(filter.field.field_path);
  if (field === undefined) return false;
  const several = filter.value.has_array_value ? filter.value.array_value.values.map(wanted) : [wanted(filter.value)];
  if (several.length > MOST_ALTERNATIVES) throw new Refused(status.INVALID_ARGUMENT, "more than 30 alternatives");
  const elements = field.type === "array_value" ? field.value.map((element) => stored(element.toJSON())) : [];
  switch (filter.op) {
    case EQUAL:
    case IN:
      return several.includes(stored(field.toJSON()));
    case ARRAY_CONTAINS:
    case ARRAY_CONTAINS_ANY:
      return elements.some((element) => several.includes(element));
  }
  throw new Refused(status.UNIMPLEMENTED, `operator ${filter.op}`);
}

function shown(it, mask) {
  const { create_time, update_time, fields, name } = it.document.toV1DocumentObject();
  const [created, updated] = it.times;
  const chosen = mask?.length ? cut(fields, mask) : fields;
  return { name, fields: chosen, create_time: stamp(created), update_time: stamp(updated) };
}

// The fields that a mask names; one of them may be a part of a map.
function cut(fields, mask) {
  const chosen = {};
  for (const path of mask) {
    const [first, second] = path.split(".");
    if (!(first in fields)) continue;
    if (second === undefined) chosen[first] = fields[first];
    else {
      const parts = fields[first].map_value?.fields ?? {};
      chosen[first] ??= { map_value: { fields: {} } };
      if (second in parts) chosen[first].map_value.fields[second] = parts[second];
    }
  }
  return chosen;
}

class Journal {
  constructor(file, isFast) {
    this.file = file;
    this.isFast = isFast;
  }

  replay(act) {
    const data = fs.existsSync(this.file) ? fs.readFileSync(this.file) : Buffer.alloc(0);
    let at = 0;
    while (at + 12 <= data.length && at + 12 + data.readUInt32LE(at) <= data.length) {
      const length = data.readUInt32LE(at);
      act(Number(data.readBigUInt64LE(at + 4)), data.subarray(at + 12, at + 12 + length));
      at += 12 + length;
    }
    fs.writeFileSync(this.file, data.subarray(0, at)); // what a kill left half written was never answered
    this.opened = fs.openSync(this.file, "a");
  }

  write(time, data) {
    const head = Buffer.alloc(12);
    head.writeUInt32LE(data.length, 0);
    head.writeBigUInt64LE(BigInt(time), 4);
    fs.writeSync(this.opened, Buffer.concat([head, data]));
    if (!this.isFast) fs.fsyncSync(this.opened);
  }
}

class Service extends wire.UnimplementedFirestoreService {
  constructor(documents, journal) {
    super();
    this.documents = documents;
    this.journal = journal;
    this.transactions = new Map(); // id -> functions that tell whether what was read is still so
  }

  begun(request) {
    if (request.has_transaction) {
      if (!this.transactions.has(id(request.transaction))) throw new Refused(status.INVALID_ARGUMENT, "no such transaction");
      return request.transaction;
    }
    if (!request.has_new_transaction) return null;
    const transaction = crypto.randomBytes(12);
    this.transactions.set(id(transaction), []);
    return transaction;
  }

  // Note what a transaction has read.
  note(transaction, read) {
    const versions = () => read().map((it) => it?.times[1] ?? null).join();
    const seen = versions();
    this.transactions.get(id(transaction)).push(() => versions() === seen);
  }

  BatchGetDocuments(call) {
    answer(call, () => {
      const { documents: paths, mask } = call.request;
      const transaction = this.begun(call.request);
      if (transaction && call.request.has_new_transaction) {
        call.write(wire.BatchGetDocumentsResponse.fromObject({ transaction }));
      }
      if (transaction) this.note(transaction, () => paths.map((path) => this.documents.at(path)));
      const time = call.request.has_read_time ? moment(call.request.read_time) : this.documents.now();
      for (const path of paths) {
        const it = this.documents.at(path, time);
        const what = it ? { found: shown(it, mask?.field_paths) } : { missing: path };
        call.write(wire.BatchGetDocumentsResponse.fromObject({ ...what, read_time: stamp(time) }));
      }
    });
  }

  RunQuery(call) {
    answer(call, () => {
      const { parent, structured_query: query } = call.request;
      const transaction = this.begun(call.request);
      const run = (time) => this.documents.query(parent, query, time);
      if (transaction) this.note(transaction, () => run().map(({ it }) => it));
      const time = call.request.has_read_time ? moment(call.request.read_time) : this.documents.now();
      const mask = query.select?.fields.map((field) => field.field_path).filter((path) => path !== "__name__");
      const only = query.has_select && !mask.length;
      for (const { it } of run(time)) {
        const document = shown(it, mask);
        if (only) document.fields = {};
        call.write(wire.RunQueryResponse.fromObject({ document, read_time: stamp(time), transaction: transaction ?? undefined }));
      }
      call.write(wire.RunQueryResponse.fromObject({ read_time: stamp(time), transaction: transaction ?? undefined }));
    });
  }

  BeginTransaction(call, callback) {
    const transaction = this.begun({ has_new_transaction: true });
    callback(null, wire.BeginTransactionResponse.fromObject({ transaction }));
  }

  Rollback(call, callback) {
    this.transactions.delete(id(call.request.transaction));
    const { Empty } = require("@firestore-emulator/proto/dist/google/protobuf/empty");
    callback(null, Empty.fromObject({}));
  }

  Commit(call, callback) {
    const { writes, transaction } = call.request;
    try {
      if (transaction.length) {
        const read = this.transactions.get(id(transaction));
        this.transactions.delete(id(transaction));
        if (!read) throw new Refused(status.INVALID_ARGUMENT, "no such transaction");
        if (!read.every((same) => same())) throw new Refused(status.ABORTED, "what this transaction read was changed");
      }
      if (writes.length > MOST_WRITES) throw new Refused(status.INVALID_ARGUMENT, `more than ${MOST_WRITES} writes`);
      for (const write of writes) this.documents.check(write);
      const time = this.documents.now();
      if (writes.length) this.journal.write(time, call.request.serialize());
      this.documents.make(writes, time);
      const results = writes.map(() => ({ update_time: stamp(time) }));
      callback(null, wire.CommitResponse.fromObject({ commit_time: stamp(time), write_results: results }));
    } catch (error) {
      callback(failure(error));
    }
  }
}

const id = (transaction) => Buffer.from(transaction).toString("hex");

function failure(error) {
  if (!(error instanceof Refused)) console.error(error);
  return { code: error.code ?? status.INTERNAL, details: error.message };
}

function answer(call, act) {
  try {
    act();
    call.end();
  } catch (error) {
    call.emit("error", failure(error));
  }
}

const [, , port, file, how] = process.argv;
const documents = new Documents();
const journal = new Journal(file, how === "fast");
journal.replay((time, data) => documents.make(wire.CommitRequest.deserialize(data).writes, time));
const server = new Server({ "grpc.max_receive_message_length": LARGEST_REQUEST, "grpc.max_send_message_length": -1 });
server.addService(Service.definition, new Service(documents, journal));
server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  console.log(`a Firestore for tests on port ${port}`);
});
process.on("SIGTERM", () => process.exit(0)); // all that was answered is in the file
