# Has ONNX's own checker look at models: one line a model that it refuses. Prints the newest operator set that it knows first.
import sys
import onnx
import onnx.checker
import onnx.defs

print(onnx.defs.onnx_opset_version())
for line in sys.stdin:
    path = line.strip()
    try:
        onnx.checker.check_model(onnx.load(path), full_check=True)
    except Exception as e:
        print(path, " ".join(str(e).split()))
