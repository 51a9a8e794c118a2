# The Cap'n Proto messages of a PopEF file.
#
# Field ordinals and types are those of the format; the names of the fields are
# the format's too. Nothing here has a default other than zero, false or empty:
# a field that a file's writer did not know reads as such.

@0x8f50fe2dd1b3359f;

using Go = import "/go.capnp";
$Go.package("wire");
$Go.import("github.com/popefgen/popefgen/popef/internal/wire");

enum BlobType {
  poplarExecutable @0;
  metadata @1;
  dataTensor @2;
  dataFeed @3;
  opaque @4;
}

enum DataType {
  bool @0;
  f8 @1;
  f16 @2;
  f32 @3;
  f64 @4;
  s8 @5;
  u8 @6;
  s16 @7;
  u16 @8;
  s32 @9;
  u32 @10;
  s64 @11;
  u64 @12;
  f8143 @13;
  f8152 @14;
}

enum TensorType {
  unknown @0;
  input @1;
  output @2;
}

struct BlobHeader {
  version @0 :Text;
  type @1 :BlobType;
  # Bytes of the whole blob: this message, the info message, the payload.
  size @2 :UInt64;
}

struct Option {
  name @0 :Text;
  value @1 :Text;
}

struct Opaque {
  name @0 :Text;
  executable @1 :Text;
}

struct PoplarExecutable {
  name @0 :Text;
  # Bytes after decompression; 2^64-1 marks a payload that is not compressed.
  uncompressedSize @1 :UInt64;
}

struct TensorInfo {
  shape @0 :List(Int64);
  dataType @1 :DataType;
}

struct Anchor {
  name @0 :Text;
  programs @1 :List(UInt32);
  handle @2 :Text;
  tensorInfo @3 :TensorInfo;
  type @4 :TensorType;
  isPerReplica @5 :Bool;
  useRemoteBuffers @6 :Bool;
  repeats @7 :UInt32;
}

struct ProgramFlow {
  load @0 :List(UInt32);
  main @1 :List(UInt32);
  save @2 :List(UInt32);
}

struct ProgramInfo {
  index @0 :UInt32;
  name @1 :Text;
}

struct Metadata {
  replicationFactor @0 :UInt32;
  numIpus @1 :UInt32;
  seedHandle @2 :Text;
  anchors @3 :List(Anchor);
  executable @4 :Text;
  numProcesses @5 :UInt32;
  ipuVersion @6 :UInt32;
  isPOD @7 :Bool;
  isInference @8 :Bool;
  engineOptions @9 :List(Option);
  deviceOptions @10 :List(Option);
  programFlow @11 :ProgramFlow;
  programsMap @12 :List(ProgramInfo);
  deviceIterations @13 :UInt32;
}

struct FeedDataInfo {
  name @0 :Text;
  tensorInfo @1 :TensorInfo;
  numTensors @2 :UInt32;
}

struct TensorDataInfo {
  name @0 :Text;
  tensorInfo @1 :TensorInfo;
}
