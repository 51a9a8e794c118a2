"""A client in Python: the code that protoc writes, grpcio and numpy, nothing of this project.

client.py STUBS ADDRESS BF16 makes every call of the protocol and prints a line for each thing that was as expected. BF16 is the
address of a server with the model identity_BF16. It ends with an error at the first thing that was not.
"""

import sys

import grpc
import numpy as np

sys.path.insert(0, sys.argv[1])
import inference_pb2 as pb  # noqa: E402
import inference_pb2_grpc as rpc  # noqa: E402

channel = grpc.insecure_channel(sys.argv[2])
stub = rpc.GRPCInferenceServiceStub(channel)
bf16 = rpc.GRPCInferenceServiceStub(grpc.insecure_channel(sys.argv[3]))
DEADLINE = 20


def want(got, expected, what):
    if got != expected:
        sys.exit(f"{what}: got {got!r}, expected {expected!r}")
    print("ok", what)


def contains(text, part, what):
    if part not in text:
        sys.exit(f"{what}: {part!r} is not in {text!r}")
    print("ok", what)


def refused(call, request, code, part, what):
    try:
        call(request, timeout=DEADLINE)
    except grpc.RpcError as e:
        want(e.code(), code, what + ", code")
        contains(e.details(), part, what + ", text")
        return
    sys.exit(f"{what}: it was answered")


def infer(model, tensors, contents=None, **more):
    """Returns a request with these arrays by name, each with its data type; raw unless contents names a field."""
    r = pb.ModelInferRequest(model_name=model, **more)
    for name, (array, datatype) in tensors.items():
        t = r.inputs.add(name=name, datatype=datatype, shape=array.shape)
        if contents:
            getattr(t.contents, contents).extend(array.flatten().tolist())
        else:
            r.raw_input_contents.append(array.tobytes())
    return r


def arrays(response, dtype):
    """Returns the outputs of a raw answer by name."""
    want(len(response.raw_output_contents), len(response.outputs), "raw outputs")
    return {o.name: np.frombuffer(b, dtype).reshape(list(o.shape)) for o, b in zip(response.outputs, response.raw_output_contents)}


def server():
    want(stub.ServerLive(pb.ServerLiveRequest(), timeout=DEADLINE).live, True, "ServerLive")
    want(stub.ServerReady(pb.ServerReadyRequest(), timeout=DEADLINE).ready, True, "ServerReady")
    m = stub.ServerMetadata(pb.ServerMetadataRequest(), timeout=DEADLINE)
    want(m.name, "triton", "ServerMetadata, name")
    want(m.version != "", True, "ServerMetadata, version")
    for e in ["classification", "statistics", "model_configuration", "model_repository", "schedule_policy"]:
        contains(list(m.extensions), e, "ServerMetadata, extensions")


def model():
    want(stub.ModelReady(pb.ModelReadyRequest(name="simple"), timeout=DEADLINE).ready, True, "ModelReady")
    want(stub.ModelReady(pb.ModelReadyRequest(name="simple", version="1"), timeout=DEADLINE).ready, True, "ModelReady of a version")
    m = stub.ModelMetadata(pb.ModelMetadataRequest(name="simple"), timeout=DEADLINE)
    want(m.name, "simple", "ModelMetadata, name")
    want(list(m.versions), ["1"], "ModelMetadata, versions")
    want([(t.name, t.datatype, list(t.shape)) for t in m.inputs], [("INPUT0", "INT32", [-1, 16]), ("INPUT1", "INT32", [-1, 16])], "ModelMetadata, inputs")
    want([(t.name, t.datatype, list(t.shape)) for t in m.outputs], [("OUTPUT0", "INT32", [-1, 16]), ("OUTPUT1", "INT32", [-1, 16])], "ModelMetadata, outputs")
    c = stub.ModelConfig(pb.ModelConfigRequest(name="simple"), timeout=DEADLINE).config
    want(c.name, "simple", "ModelConfig, name")
    want(c.max_batch_size, 8, "ModelConfig, max_batch_size")
    want([(t.name, t.data_type, list(t.dims)) for t in c.input], [("INPUT0", pb.TYPE_INT32, [16]), ("INPUT1", pb.TYPE_INT32, [16])], "ModelConfig, inputs")
    want([(t.name, t.data_type, list(t.dims)) for t in c.output], [("OUTPUT0", pb.TYPE_INT32, [16]), ("OUTPUT1", pb.TYPE_INT32, [16])], "ModelConfig, outputs")


def sums():
    for n in range(1, 9):
        a = np.arange(16 * n, dtype=np.int32).reshape(n, 16)
        b = np.full((n, 16), n - 4, np.int32)
        tensors = {"INPUT0": (a, "INT32"), "INPUT1": (b, "INT32")}
        r = stub.ModelInfer(infer("simple", tensors, id=f"request {n}"), timeout=DEADLINE)
        want((r.model_name, r.model_version, r.id), ("simple", "1", f"request {n}"), "ModelInfer, names")
        got = arrays(r, np.int32)
        want([(o.name, o.datatype) for o in r.outputs], [("OUTPUT0", "INT32"), ("OUTPUT1", "INT32")], "ModelInfer, outputs")
        want((got["OUTPUT0"] == a + b).all() and (got["OUTPUT1"] == a - b).all(), True, f"ModelInfer of {n} samples")
        r = stub.ModelInfer(infer("simple", tensors, contents="int_contents"), timeout=DEADLINE)
        for o, expected, raw in zip(r.outputs, [a + b, a - b], list(r.raw_output_contents) or [None, None]):
            values = np.array(o.contents.int_contents, np.int32) if raw is None else np.frombuffer(raw, np.int32)
            want((values.reshape(n, 16) == expected).all(), True, f"ModelInfer of {n} samples by contents")
    q = infer("simple", tensors)
    q.outputs.add(name="OUTPUT1")
    r = stub.ModelInfer(q, timeout=DEADLINE)
    want([o.name for o in r.outputs], ["OUTPUT1"], "ModelInfer, one output")
    want((arrays(r, np.int32)["OUTPUT1"] == a - b).all(), True, "ModelInfer, the right output")


FIELDS = {
    "BOOL": (np.bool_, "bool_contents"), "UINT8": (np.uint8, "uint_contents"), "UINT16": (np.uint16, "uint_contents"),
    "UINT32": (np.uint32, "uint_contents"), "UINT64": (np.uint64, "uint64_contents"), "INT8": (np.int8, "int_contents"),
    "INT16": (np.int16, "int_contents"), "INT32": (np.int32, "int_contents"), "INT64": (np.int64, "int64_contents"),
    "FP32": (np.float32, "fp32_contents"), "FP64": (np.float64, "fp64_contents"), "FP16": (np.float16, None), "BF16": (np.uint16, None),
}


def types():
    """Sends the ends of each type's range and gets them back, raw and in contents."""
    for name, (dtype, field) in FIELDS.items():
        if dtype is np.bool_:
            values = [True, False, True]
        elif np.issubdtype(dtype, np.floating):
            values = [np.finfo(dtype).min, np.finfo(dtype).tiny, -0.0]
        else:
            values = [np.iinfo(dtype).min, np.iinfo(dtype).max, 7]
        a = np.array([values, values[::-1]], dtype)
        for how in [None, field] if field else [None]:
            q = infer("identity_" + name, {"INPUT0": (a, name)}, contents=how)
            r = (bf16 if name == "BF16" else stub).ModelInfer(q, timeout=DEADLINE)
            o = r.outputs[0]
            want((o.datatype, list(o.shape)), (name, [2, 3]), f"{name}, type and shape")
            want(r.raw_output_contents[0], a.tobytes(), f"{name}, {how or 'raw'}")
            if how:
                q.parameters["binary_data_output"].bool_param = False
                o = stub.ModelInfer(q, timeout=DEADLINE).outputs[0]
                want(np.array(list(getattr(o.contents, field)), dtype).tobytes(), a.tobytes(), f"{name}, {how} both ways")


def options():
    """Sends what requests of Triton's clients have beside their inputs."""
    a = np.arange(16, dtype=np.int32).reshape(1, 16)
    q = infer("simple", {"INPUT0": (a, "INT32"), "INPUT1": (a, "INT32")})
    for method in [grpc.Compression.Gzip, grpc.Compression.Deflate]:
        r = stub.ModelInfer(q, timeout=DEADLINE, compression=method, metadata=[("test", "1")])
        want((arrays(r, np.int32)["OUTPUT0"] == 2 * a).all(), True, f"ModelInfer, {method}")
    q.parameters["priority"].uint64_param = 1
    q.parameters["timeout"].int64_param = 20_000_000
    q.parameters["mine"].string_param = "x"
    want((arrays(stub.ModelInfer.future(q, timeout=DEADLINE).result(), np.int32)["OUTPUT1"] == 0).all(), True, "ModelInfer with parameters, later")
    q.parameters["sequence_id"].int64_param = 7
    refused(stub.ModelInfer, q, grpc.StatusCode.UNIMPLEMENTED, "sequence_id", "a sequence")
    scores = np.array([[0.25, 2, 1], [-1, -2, 0.5]], np.float32)
    q = infer("scores", {"INPUT0": (scores, "FP32")})
    q.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 2
    r = stub.ModelInfer(q, timeout=DEADLINE)
    want((r.outputs[0].datatype, list(r.outputs[0].shape)), ("BYTES", [2, 2]), "classification, type and shape")
    want(texts(r.raw_output_contents[0]), ["2.000000:1:dog", "1.000000:2:bird", "0.500000:2:bird", "-1.000000:0:cat"], "classification")
    for name, part in {"SystemSharedMemoryStatus": "memory", "CudaSharedMemoryRegister": "memory", "TraceSetting": "traces", "LogSettings": "log"}.items():
        method = channel.unary_unary("/inference.GRPCInferenceService/" + name, request_serializer=bytes, response_deserializer=bytes)
        refused(method, b"", grpc.StatusCode.UNIMPLEMENTED, part, name)


def texts(data):
    """Returns the elements of the type BYTES."""
    found = []
    while data:
        n = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + n].decode())
        data = data[4 + n :]
    return found


def errors():
    bad = grpc.StatusCode.INVALID_ARGUMENT
    a = np.zeros((1, 16), np.int32)
    right = {"INPUT0": (a, "INT32"), "INPUT1": (a, "INT32")}
    unknown = "Request for unknown model"
    refused(stub.ModelInfer, infer("absent", right), grpc.StatusCode.NOT_FOUND, unknown, "infer of an unknown model")
    refused(stub.ModelInfer, infer("simple", right, model_version="7"), grpc.StatusCode.NOT_FOUND, unknown, "infer of an unknown version")
    refused(stub.ModelInfer, infer("simple", right, model_version="wrong_specification"), grpc.StatusCode.NOT_FOUND, "failed to get model version from specified version string 'wrong_specification'", "infer of a version that is no number")
    refused(stub.ModelMetadata, pb.ModelMetadataRequest(name="absent"), grpc.StatusCode.NOT_FOUND, unknown, "metadata of an unknown model")
    refused(stub.ModelConfig, pb.ModelConfigRequest(name="absent"), grpc.StatusCode.NOT_FOUND, unknown, "config of an unknown model")
    refused(stub.ModelStatistics, pb.ModelStatisticsRequest(name="absent"), grpc.StatusCode.NOT_FOUND, unknown, "statistics of an unknown model")
    wide = np.zeros((1, 17), np.int32)
    refused(stub.ModelInfer, infer("simple", {"INPUT0": (wide, "INT32"), "INPUT1": (a, "INT32")}), bad, "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16]", "wrong shape")
    many = np.zeros((9, 16), np.int32)
    refused(stub.ModelInfer, infer("simple", {"INPUT0": (many, "INT32"), "INPUT1": (many, "INT32")}), bad, "INPUT0", "too many samples")
    refused(stub.ModelInfer, infer("simple", {"INPUT0": (a.astype(np.float32), "FP32"), "INPUT1": (a, "INT32")}), bad, "inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'", "wrong type")
    refused(stub.ModelInfer, infer("simple", {"INPUT0": (a, "INT32")}), bad, "expected 2 inputs but got 1 inputs for model 'simple'", "missing input")
    refused(stub.ModelInfer, infer("simple", {**right, "INPUT2": (a, "INT32")}), bad, "unexpected inference input 'INPUT2' for model 'simple'", "unknown input")
    short = infer("simple", right)
    short.raw_input_contents[1] = short.raw_input_contents[1][:-1]
    refused(stub.ModelInfer, short, bad, "INPUT1", "too few bytes")
    mixed = infer("simple", right)
    mixed.inputs[0].contents.int_contents.extend([0] * 16)
    refused(stub.ModelInfer, mixed, bad, "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'simple'", "raw and contents")
    del mixed.raw_input_contents[1]
    refused(stub.ModelInfer, mixed, bad, "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'simple'", "raw and contents, of one input")
    output = infer("simple", right)
    output.outputs.add(name="OUTPUT9")
    refused(stub.ModelInfer, output, bad, "unexpected inference output 'OUTPUT9' for model 'simple'", "unknown output")


def stream():
    a = np.arange(16, dtype=np.int32).reshape(1, 16)
    b = np.ones((1, 16), np.int32)
    good = [infer("simple", {"INPUT0": (a * k, "INT32"), "INPUT1": (b, "INT32")}, id=str(k)) for k in range(4)]
    good[2].model_name = "absent"
    answers = list(stub.ModelStreamInfer(iter(good), timeout=DEADLINE))
    want(len(answers), 4, "ModelStreamInfer, an answer for each request")
    for k, r in enumerate(answers):
        if k == 2:
            contains(r.error_message, "Request for unknown model", "ModelStreamInfer, the one that is wrong")
            continue
        want((r.error_message, r.infer_response.id), ("", str(k)), "ModelStreamInfer, order")
        want((arrays(r.infer_response, np.int32)["OUTPUT0"] == a * k + b).all(), True, "ModelStreamInfer, sums")


def statistics():
    s = stub.ModelStatistics(pb.ModelStatisticsRequest(name="simple"), timeout=DEADLINE).model_stats
    want([(m.name, m.version) for m in s], [("simple", "1")], "ModelStatistics, names")
    want(s[0].inference_stats.success.count >= 20, True, "ModelStatistics, successes")
    want(s[0].inference_count >= 72, True, "ModelStatistics, samples")
    want(s[0].execution_count > 0 and s[0].last_inference > 0, True, "ModelStatistics, runs")
    want(s[0].inference_stats.compute_infer.ns > 0, True, "ModelStatistics, time")
    every = {m.name for m in stub.ModelStatistics(pb.ModelStatisticsRequest(), timeout=DEADLINE).model_stats}
    contains(every, "identity_FP32", "ModelStatistics of all models")


def repository():
    def index(**q):
        return {m.name: m.state for m in stub.RepositoryIndex(pb.RepositoryIndexRequest(**q), timeout=DEADLINE).models}

    def ready(name):
        return stub.ModelReady(pb.ModelReadyRequest(name=name), timeout=DEADLINE).ready

    want(index()["simple"], "READY", "RepositoryIndex")
    want(len(index()), 14, "RepositoryIndex, a row for each model")
    stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="simple", parameters={"unload_dependents": pb.ModelRepositoryParameter(bool_param=False)}), timeout=DEADLINE)
    want(ready("simple"), False, "ModelReady of a model that was unloaded")
    want("simple" in index(ready=True), False, "RepositoryIndex of those that are ready")
    want(index()["simple"] in ["UNLOADING", "UNAVAILABLE"], True, "RepositoryIndex after an unload")
    a = np.zeros((1, 16), np.int32)
    q = infer("simple", {"INPUT0": (a, "INT32"), "INPUT1": (a, "INT32")})
    refused(stub.ModelInfer, q, grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'simple' is not found", "infer after an unload")
    for name in ["config", "file:1/model.onnx"]:
        q = pb.RepositoryModelLoadRequest(model_name="simple", parameters={name: pb.ModelRepositoryParameter(string_param="{}")})
        refused(stub.RepositoryModelLoad, q, grpc.StatusCode.UNIMPLEMENTED, f"failed to load 'simple': parameter '{name}'", "load with " + name)
    refused(stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name="wrong_model_name"), grpc.StatusCode.NOT_FOUND, "failed to load 'wrong_model_name'", "load of no model")
    refused(stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="wrong_model_name"), grpc.StatusCode.NOT_FOUND, "failed to unload 'wrong_model_name'", "unload of no model")
    for _ in range(2):
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="simple"), timeout=DEADLINE)
        want(ready("simple"), True, "ModelReady after a load")
    sums()


for part in [server, model, sums, types, options, errors, stream, statistics, repository]:
    part()
