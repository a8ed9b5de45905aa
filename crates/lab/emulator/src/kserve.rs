//! Messages of KServe V2 over gRPC and of gRPC's health service, after the public definitions.
//!
//! Written by hand rather than generated: only the messages used here, without a protobuf compiler
//! at build time. Clients of the emulator can use them too.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, Oneof};

/// Message `ModelReadyRequest`, `ModelMetadataRequest`, `ModelConfigRequest` or
/// `ModelStatisticsRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelRequest {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the model; empty leaves the choice to the server.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Message `ServerLiveResponse`, `ServerReadyResponse` or `ModelReadyResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct FlagResponse {
    /// True if the server is live, or the server or model is ready.
    #[prost(bool, tag = "1")]
    pub is_so: bool,
}

/// Message `ServerMetadataResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ServerMetadata {
    /// Name of the server.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the server.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Protocol extensions that the server knows.
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

/// Message `ModelMetadataResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelMetadata {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Versions of the model.
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    /// Platform that runs the model.
    #[prost(string, tag = "3")]
    pub platform: String,
    /// Inputs of the model.
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    /// Outputs of the model.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

/// Message `ModelMetadataResponse.TensorMetadata`.
#[derive(Clone, PartialEq, Message)]
pub struct TensorMetadata {
    /// Name of the tensor.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type of the elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Dimensions; -1 is any size.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// Message `ModelConfigResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelConfigResponse {
    /// Configuration of the model.
    #[prost(message, optional, tag = "1")]
    pub config: Option<ModelConfig>,
}

/// Message `ModelConfig`, reduced to the fields used here.
#[derive(Clone, PartialEq, Message)]
pub struct ModelConfig {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Platform that runs the model.
    #[prost(string, tag = "2")]
    pub platform: String,
}

/// Message `ModelStatisticsResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelStatisticsResponse {
    /// Statistics, one entry for each version.
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

/// Message `ModelStatistics`, reduced to the fields used here.
#[derive(Clone, PartialEq, Message)]
pub struct ModelStatistics {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the model.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Number of successful inferences; in the emulator those of the whole replica.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
}

/// Message `ModelInferRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct InferRequest {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Version of the model; empty leaves the choice to the server.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Id of the request, repeated in the response.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Parameters for the model.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Input tensors.
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<Tensor>,
    /// Requested outputs; empty requests all of them.
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<RequestedOutput>,
    /// Binary data of all inputs, in their order, if the tensors have no `contents`.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
}

/// Message `ModelInferResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct InferResponse {
    /// Name of the model.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Version of the model.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Id of the request.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Parameters from the model.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Output tensors.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<Tensor>,
    /// Binary data of all outputs, in their order, if the tensors have no `contents`.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
}

/// Message `ModelStreamInferResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct StreamInferResponse {
    /// Error of one request; the stream goes on.
    #[prost(string, tag = "1")]
    pub error_message: String,
    /// Response to the request.
    #[prost(message, optional, tag = "2")]
    pub infer_response: Option<InferResponse>,
}

/// Message `InferInputTensor` or `InferOutputTensor`, which are alike.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// Name of the tensor.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type of the elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Dimensions.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// Parameters of the tensor.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Data, if they are not sent in binary form.
    #[prost(message, optional, tag = "5")]
    pub contents: Option<KserveContents>,
}

/// Message `InferRequestedOutputTensor`.
#[derive(Clone, PartialEq, Message)]
pub struct RequestedOutput {
    /// Name of the output.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Parameters of the output.
    #[prost(btree_map = "string, message", tag = "2")]
    pub parameters: BTreeMap<String, Parameter>,
}

/// Message `InferTensorContents`: the elements, in the field for their type.
#[derive(Clone, PartialEq, Message)]
pub struct KserveContents {
    /// Elements of type `BOOL`.
    #[prost(bool, repeated, tag = "1")]
    pub bools: Vec<bool>,
    /// Elements of type `INT8`, `INT16` or `INT32`.
    #[prost(int32, repeated, tag = "2")]
    pub ints: Vec<i32>,
    /// Elements of type `INT64`.
    #[prost(int64, repeated, tag = "3")]
    pub ints_64: Vec<i64>,
    /// Elements of type `UINT8`, `UINT16` or `UINT32`.
    #[prost(uint32, repeated, tag = "4")]
    pub uints: Vec<u32>,
    /// Elements of type `UINT64`.
    #[prost(uint64, repeated, tag = "5")]
    pub uints_64: Vec<u64>,
    /// Elements of type `FP32`.
    #[prost(float, repeated, tag = "6")]
    pub floats: Vec<f32>,
    /// Elements of type `FP64`.
    #[prost(double, repeated, tag = "7")]
    pub doubles: Vec<f64>,
    /// Elements of type `BYTES`.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes: Vec<Bytes>,
}

/// Message `InferParameter`.
#[derive(Clone, PartialEq, Message)]
pub struct Parameter {
    /// Value of the parameter.
    #[prost(oneof = "ParameterValue", tags = "1, 2, 3, 4, 5")]
    pub value: Option<ParameterValue>,
}

/// Choice `InferParameter.parameter_choice`.
#[derive(Clone, PartialEq, Oneof)]
pub enum ParameterValue {
    /// Boolean.
    #[prost(bool, tag = "1")]
    Bool(bool),
    /// Signed integer.
    #[prost(int64, tag = "2")]
    Int(i64),
    /// Text.
    #[prost(string, tag = "3")]
    Text(String),
    /// Floating-point number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Unsigned integer.
    #[prost(uint64, tag = "5")]
    Uint(u64),
}

/// Message `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct HealthRequest {
    /// Name of the service; empty means the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// Message `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthResponse {
    /// Status: 1 is serving, 2 is not serving.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

impl KserveContents {
    /// Returns the number of elements.
    #[must_use]
    pub fn count(&self) -> usize {
        let numbers = self.bools.len() + self.ints.len() + self.ints_64.len() + self.uints.len();
        let wide = self.uints_64.len() + self.floats.len() + self.doubles.len();
        numbers + wide + self.bytes.len()
    }
}

impl From<ParameterValue> for Parameter {
    fn from(value: ParameterValue) -> Self {
        Self { value: Some(value) }
    }
}
