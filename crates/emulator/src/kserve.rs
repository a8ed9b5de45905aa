//! Messages of KServe V2 over gRPC and of gRPC's health service, by the public definitions.
//!
//! Written by hand rather than generated: only what is used here, and no compiler for them at build
//! time. Clients of the emulator can use them too.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, Oneof};

/// `ModelReadyRequest`, `ModelMetadataRequest`, `ModelConfigRequest`, `ModelStatisticsRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelRequest {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version; empty leaves the choice to the server.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `ServerLiveResponse`, `ServerReadyResponse`, `ModelReadyResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct FlagResponse {
    /// Whether it is so.
    #[prost(bool, tag = "1")]
    pub is_so: bool,
}

/// `ServerMetadataResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ServerMetadata {
    /// The server's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Extensions of the protocol that it knows.
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

/// `ModelMetadataResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelMetadata {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its versions.
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    /// What runs it.
    #[prost(string, tag = "3")]
    pub platform: String,
    /// What it takes.
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    /// What it gives.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

/// `ModelMetadataResponse.TensorMetadata`.
#[derive(Clone, PartialEq, Message)]
pub struct TensorMetadata {
    /// The tensor's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type of its elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Its dimensions; -1 is any.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// `ModelConfigResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelConfigResponse {
    /// The configuration.
    #[prost(message, optional, tag = "1")]
    pub config: Option<ModelConfig>,
}

/// `ModelConfig`, as far as there is something to say.
#[derive(Clone, PartialEq, Message)]
pub struct ModelConfig {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What runs it.
    #[prost(string, tag = "2")]
    pub platform: String,
}

/// `ModelStatisticsResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ModelStatisticsResponse {
    /// One entry for each version.
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

/// `ModelStatistics`, as far as there is something to say.
#[derive(Clone, PartialEq, Message)]
pub struct ModelStatistics {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Inferences that succeeded; here those of the whole replica.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
}

/// `ModelInferRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct InferRequest {
    /// The model's name.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Its version; empty leaves the choice to the server.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Comes back with the response.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Whatever the model understands.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, Parameter>,
    /// What goes in.
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<Tensor>,
    /// What is asked for; empty asks for everything.
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<RequestedOutput>,
    /// The data of all inputs in binary form, in their order, if `contents` have none.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
}

/// `ModelInferResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct InferResponse {
    /// The model that answered.
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// That of the request.
    #[prost(string, tag = "3")]
    pub id: String,
    /// Whatever the model has to say.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, Parameter>,
    /// What came out.
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<Tensor>,
    /// The data of all outputs in binary form, in their order, if `contents` have none.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
}

/// `ModelStreamInferResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct StreamInferResponse {
    /// What went wrong with one request; the stream goes on.
    #[prost(string, tag = "1")]
    pub error_message: String,
    /// What came out of it.
    #[prost(message, optional, tag = "2")]
    pub infer_response: Option<InferResponse>,
}

/// `InferInputTensor` and `InferOutputTensor`, which are alike.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type of its elements.
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// Its dimensions.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// Whatever belongs to it.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, Parameter>,
    /// Its data, if they are not sent in binary form.
    #[prost(message, optional, tag = "5")]
    pub contents: Option<Contents>,
}

/// `InferRequestedOutputTensor`.
#[derive(Clone, PartialEq, Message)]
pub struct RequestedOutput {
    /// The name it shall have.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Whatever belongs to it.
    #[prost(btree_map = "string, message", tag = "2")]
    pub parameters: BTreeMap<String, Parameter>,
}

/// `InferTensorContents`: elements in the one field that fits their type.
#[derive(Clone, PartialEq, Message)]
pub struct Contents {
    /// `BOOL`.
    #[prost(bool, repeated, tag = "1")]
    pub bools: Vec<bool>,
    /// `INT8`, `INT16`, `INT32`.
    #[prost(int32, repeated, tag = "2")]
    pub ints: Vec<i32>,
    /// `INT64`.
    #[prost(int64, repeated, tag = "3")]
    pub ints_64: Vec<i64>,
    /// `UINT8`, `UINT16`, `UINT32`.
    #[prost(uint32, repeated, tag = "4")]
    pub uints: Vec<u32>,
    /// `UINT64`.
    #[prost(uint64, repeated, tag = "5")]
    pub uints_64: Vec<u64>,
    /// `FP32`.
    #[prost(float, repeated, tag = "6")]
    pub floats: Vec<f32>,
    /// `FP64`.
    #[prost(double, repeated, tag = "7")]
    pub doubles: Vec<f64>,
    /// `BYTES`.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes: Vec<Bytes>,
}

/// `InferParameter`.
#[derive(Clone, PartialEq, Message)]
pub struct Parameter {
    /// Its value.
    #[prost(oneof = "ParameterValue", tags = "1, 2, 3, 4, 5")]
    pub value: Option<ParameterValue>,
}

/// `InferParameter.parameter_choice`.
#[derive(Clone, PartialEq, Oneof)]
pub enum ParameterValue {
    /// A truth value.
    #[prost(bool, tag = "1")]
    Bool(bool),
    /// A whole number.
    #[prost(int64, tag = "2")]
    Int(i64),
    /// A text.
    #[prost(string, tag = "3")]
    Text(String),
    /// A number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// A whole number that is not negative.
    #[prost(uint64, tag = "5")]
    Uint(u64),
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct HealthRequest {
    /// The service asked about; empty means the server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthResponse {
    /// 1 is serving, 2 is not serving.
    #[prost(int32, tag = "1")]
    pub status: i32,
}

impl Contents {
    /// How many elements there are.
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
