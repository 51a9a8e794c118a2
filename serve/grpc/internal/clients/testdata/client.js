// A client in Node: @grpc/grpc-js and @grpc/proto-loader, which reads the .proto file itself.
//
// client.js PROTO ADDRESS BF16 makes every call of the protocol and prints a line for each thing that was as expected. BF16 is the address of
// a server with the model identity_BF16. It ends with an error at the first thing that was not. Packages come from NODE_PATH.
"use strict";

const assert = require("node:assert/strict");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [proto, address, bf16Address] = process.argv.slice(2);
const definition = loader.loadSync(proto, { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true });
const { GRPCInferenceService } = grpc.loadPackageDefinition(definition).inference;
const client = new GRPCInferenceService(address, grpc.credentials.createInsecure());

const bf16 = new GRPCInferenceService(bf16Address, grpc.credentials.createInsecure());

const call = (name, request, to = client) =>
  new Promise((resolve, reject) =>
    to[name](request, { deadline: Date.now() + 20000 }, (err, answer) => (err ? reject(err) : resolve(answer))));

const want = (got, expected, what) => {
  assert.deepEqual(got, expected, what);
  console.log("ok", what);
};

async function refused(name, request, code, part, what) {
  const err = await call(name, request).then(() => null, (e) => e);
  assert.ok(err, `${what}: it was answered`);
  want(err.code, code, `${what}, code`);
  assert.ok(err.details.includes(part), `${what}: ${JSON.stringify(part)} is not in ${JSON.stringify(err.details)}`);
}

const bytes = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength);
const int32 = (buffer) => Array.from(new Int32Array(new Uint8Array(buffer).buffer));

// simple returns a request for n samples, and the sums and differences that answer it.
function simple(n, id) {
  const a = Int32Array.from({ length: 16 * n }, (_, i) => i * 3);
  const b = Int32Array.from({ length: 16 * n }, (_, i) => n - i);
  const input = (name) => ({ name, datatype: "INT32", shape: [n, 16] });
  const request = { model_name: "simple", id, inputs: [input("INPUT0"), input("INPUT1")], raw_input_contents: [bytes(a), bytes(b)] };
  return { request, sums: Array.from(a, (v, i) => v + b[i]), differences: Array.from(a, (v, i) => v - b[i]), a: Array.from(a), b: Array.from(b) };
}

async function server() {
  want((await call("ServerLive", {})).live, true, "ServerLive");
  want((await call("ServerReady", {})).ready, true, "ServerReady");
  const m = await call("ServerMetadata", {});
  want(m.name, "triton", "ServerMetadata, name");
  assert.ok(m.extensions.includes("statistics"), `ServerMetadata, extensions: ${m.extensions}`);
}

async function model() {
  want((await call("ModelReady", { name: "simple" })).ready, true, "ModelReady");
  const m = await call("ModelMetadata", { name: "simple" });
  want([m.name, m.versions], ["simple", ["1"]], "ModelMetadata, names");
  const tensors = (names) => names.map((name) => ({ name, datatype: "INT32", shape: ["-1", "16"] }));
  want([m.inputs, m.outputs].map((list) => list.map(({ name, datatype, shape }) => ({ name, datatype, shape }))), [tensors(["INPUT0", "INPUT1"]), tensors(["OUTPUT0", "OUTPUT1"])], "ModelMetadata, tensors");
  const { config } = await call("ModelConfig", { name: "simple" });
  want([config.name, config.max_batch_size], ["simple", 8], "ModelConfig");
  want(config.input.map((t) => [t.name, t.data_type, t.dims]), [["INPUT0", "TYPE_INT32", ["16"]], ["INPUT1", "TYPE_INT32", ["16"]]], "ModelConfig, inputs");
}

async function sums() {
  for (let n = 1; n <= 8; n++) {
    const q = simple(n, `request ${n}`);
    const r = await call("ModelInfer", q.request);
    want([r.model_name, r.model_version, r.id], ["simple", "1", `request ${n}`], "ModelInfer, names");
    want(r.outputs.map((o) => [o.name, o.datatype, o.shape]), [["OUTPUT0", "INT32", [`${n}`, "16"]], ["OUTPUT1", "INT32", [`${n}`, "16"]]], "ModelInfer, outputs");
    want(r.raw_output_contents.map(int32), [q.sums, q.differences], `ModelInfer of ${n} samples`);
  }
  const q = simple(2, "");
  delete q.request.raw_input_contents;
  q.request.inputs[0].contents = { int_contents: q.a };
  q.request.inputs[1].contents = { int_contents: q.b };
  const r = await call("ModelInfer", q.request);
  want(r.raw_output_contents.map(int32), [q.sums, q.differences], "ModelInfer by contents");
  q.request.parameters = { binary_data_output: { bool_param: false } };
  want((await call("ModelInfer", q.request)).outputs.map((o) => o.contents.int_contents), [q.sums, q.differences], "ModelInfer by contents both ways");
}

async function types() {
  const arrays = {
    BOOL: [Uint8Array.of(1, 0, 1), "bool_contents", [true, false, true]],
    UINT8: [Uint8Array.of(0, 255, 7), "uint_contents"], UINT16: [Uint16Array.of(0, 65535, 7), "uint_contents"],
    UINT32: [Uint32Array.of(0, 4294967295, 7), "uint_contents"], UINT64: [BigUint64Array.of(0n, 18446744073709551615n, 7n), "uint64_contents"],
    INT8: [Int8Array.of(-128, 127, 7), "int_contents"], INT16: [Int16Array.of(-32768, 32767, 7), "int_contents"],
    INT32: [Int32Array.of(-2147483648, 2147483647, 7), "int_contents"], INT64: [BigInt64Array.of(-9223372036854775808n, 9223372036854775807n, 7n), "int64_contents"],
    FP32: [Float32Array.of(1.5, -0, Infinity), "fp32_contents"], FP64: [Float64Array.of(1.5, -0, 5e-324), "fp64_contents"],
    FP16: [Uint16Array.of(0x3c00, 0x8000, 1)], BF16: [Uint16Array.of(0x3f80, 0x8000, 1)],
  };
  for (const [name, [array, field, values]] of Object.entries(arrays)) {
    for (const contents of field ? [null, field] : [null]) {
      const input = { name: "INPUT0", datatype: name, shape: [1, 3] };
      const request = { model_name: `identity_${name}`, inputs: [input] };
      if (contents) input.contents = { [contents]: values || Array.from(array, (v) => (typeof v === "bigint" ? v.toString() : v)) };
      else request.raw_input_contents = [bytes(array)];
      const r = await call("ModelInfer", request, name === "BF16" ? bf16 : client);
      want([r.outputs[0].datatype, r.outputs[0].shape], [name, ["1", "3"]], `${name}, type and shape`);
      want(r.raw_output_contents[0], bytes(array), `${name}, ${contents || "raw"}`);
    }
  }
}

async function errors() {
  const unknown = "Request for unknown model";
  await refused("ModelInfer", { ...simple(1, "").request, model_name: "absent" }, grpc.status.NOT_FOUND, unknown, "infer of an unknown model");
  await refused("ModelMetadata", { name: "absent" }, grpc.status.NOT_FOUND, unknown, "metadata of an unknown model");
  const wide = simple(1, "").request;
  wide.inputs[0].shape = [1, 17];
  await refused("ModelInfer", wide, grpc.status.INVALID_ARGUMENT, "unexpected shape for input 'INPUT0' for model 'simple'", "wrong shape");
  const typed = simple(1, "").request;
  typed.inputs[1].datatype = "FP32";
  await refused("ModelInfer", typed, grpc.status.INVALID_ARGUMENT, "data-type is 'FP32', but model 'simple' expects 'INT32'", "wrong type");
}

function stream() {
  return new Promise((resolve, reject) => {
    const both = client.ModelStreamInfer({ deadline: Date.now() + 20000 });
    const got = [];
    both.on("data", (r) => got.push(r));
    both.on("error", reject);
    both.on("end", () => {
      want(got.map((r) => (r.error_message ? "refused" : r.infer_response.id)), ["1", "refused", "3"], "ModelStreamInfer, order");
      want(got[2].infer_response.raw_output_contents.map(int32), [simple(3, "").sums, simple(3, "").differences], "ModelStreamInfer, sums");
      resolve();
    });
    for (const n of [1, 2, 3]) {
      const { request } = simple(n, `${n}`);
      both.write(n === 2 ? { ...request, model_name: "absent" } : request);
    }
    both.end();
  });
}

async function statistics() {
  const { model_stats: s } = await call("ModelStatistics", { name: "simple" });
  want([s[0].name, s[0].version], ["simple", "1"], "ModelStatistics, names");
  assert.ok(Number(s[0].inference_stats.success.count) >= 9, `ModelStatistics, successes: ${JSON.stringify(s[0])}`);
  const index = await call("RepositoryIndex", {});
  want(index.models.filter((m) => m.name === "simple").map((m) => m.state), ["READY"], "RepositoryIndex");
}

async function classes() {
  const scores = Float32Array.of(0.25, 2, 1);
  const output = { name: "OUTPUT0", parameters: { classification: { int64_param: 2 } } };
  const r = await call("ModelInfer", { model_name: "scores", inputs: [{ name: "INPUT0", datatype: "FP32", shape: [1, 3] }], outputs: [output], raw_input_contents: [bytes(scores)] });
  want([r.outputs[0].datatype, r.outputs[0].shape], ["BYTES", ["1", "2"]], "classification, type and shape");
  want(r.raw_output_contents[0].toString("latin1"), "\x0e\0\0\x002.000000:1:dog\x0f\0\0\x001.000000:2:bird", "classification");
}

async function repository() {
  const ready = async () => (await call("ModelReady", { name: "simple" })).ready;
  await call("RepositoryModelUnload", { model_name: "simple" });
  want(await ready(), false, "ModelReady of a model that was unloaded");
  const { models } = await call("RepositoryIndex", { ready: true });
  want(models.filter((m) => m.name === "simple"), [], "RepositoryIndex of those that are ready");
  await refused("ModelInfer", simple(1, "").request, grpc.status.NOT_FOUND, "Request for unknown model: 'simple' is not found", "infer after an unload");
  await refused("RepositoryModelLoad", { model_name: "simple", parameters: { config: { string_param: "{}" } } }, grpc.status.UNIMPLEMENTED, "failed to load 'simple': parameter 'config'", "load with a configuration");
  await refused("RepositoryModelLoad", { model_name: "wrong_model_name" }, grpc.status.NOT_FOUND, "failed to load 'wrong_model_name'", "load of no model");
  await call("RepositoryModelLoad", { model_name: "simple" });
  want(await ready(), true, "ModelReady after a load");
  await sums();
}

(async () => {
  for (const part of [server, model, sums, types, classes, errors, stream, statistics, repository]) await part();
  client.close();
  bf16.close();
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
