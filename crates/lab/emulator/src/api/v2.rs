//! KServe V2 inference protocol over HTTP, with the binary tensor extension. Every model returns
//! its inputs.

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::generate::prefill;
use super::tensor::{self, Datatype};
use super::{ApiCall, ApiError, Reply, json, with_type};
use crate::body::ReplyBody;
use crate::text::TOKEN_BYTES;

/// Header with the length of a body's JSON part, if binary tensors follow it.
const HEADER_LENGTH: &str = "inference-header-content-length";
/// Only version of every model.
const VERSION: &str = "1";

/// Answers a request for the path `/v2` + `rest`.
pub(crate) async fn answer(call: &ApiCall, rest: &str) -> Reply {
    let segments: Vec<&str> = rest.split('/').skip(1).collect();
    let method = call.method.as_str();
    match (method, segments.as_slice()) {
        ("GET", [] | [""]) => Ok(ok(&server())),
        ("GET", ["health", "live"]) => Ok(ok(&json!({ "live": true }))),
        ("GET", ["health", "ready"]) => Ok(ok(&json!({ "ready": true }))),
        (_, ["models", model, "versions", version, tail @ ..]) => {
            if *version != VERSION {
                let message = format!("model '{model}' has no version '{version}'");
                return Err(ApiError::not_found(message));
            }
            answer_model(call, model, tail).await
        }
        (_, ["models", model, tail @ ..]) => answer_model(call, model, tail).await,
        _ => Err(ApiError::not_found(format!("there is no {method} /v2{rest}"))),
    }
}

async fn answer_model(call: &ApiCall, model: &str, tail: &[&str]) -> Reply {
    call.check_model(model).map_err(|_| {
        ApiError::not_found(format!("Request for unknown model: '{model}' is not found"))
    })?;
    match (call.method.as_str(), tail) {
        ("GET", []) => Ok(ok(&metadata(model))),
        ("GET", ["ready"]) => Ok(ok(&json!({ "name": model, "ready": true }))),
        ("POST", ["infer"]) => infer(call, model).await,
        _ => Err(ApiError::not_found(format!("there is no {} {}", call.method, call.path))),
    }
}

fn ok(value: &Value) -> Response<ReplyBody> {
    json(StatusCode::OK, value)
}

fn server() -> Value {
    json!({
        "name": "spillway-emulator",
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["binary_tensor_data"],
    })
}

fn metadata(model: &str) -> Value {
    json!({
        "name": model,
        "versions": [VERSION],
        "platform": "spillway_emulator_identity",
        "inputs": [{ "name": "INPUT0", "datatype": "FP32", "shape": [-1] }],
        "outputs": [{ "name": "OUTPUT0", "datatype": "FP32", "shape": [-1] }],
    })
}

#[derive(Debug, Deserialize)]
struct InferRequest {
    id: Option<String>,
    inputs: Vec<InputHead>,
    #[serde(default)]
    outputs: Vec<OutputHead>,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Debug, Deserialize)]
struct InputHead {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    #[serde(default)]
    parameters: Parameters,
    data: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct OutputHead {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Parameters {
    binary_data: Option<bool>,
    binary_data_output: Option<bool>,
    binary_data_size: Option<usize>,
}

/// Tensor, always held in binary form.
struct Tensor {
    name: String,
    shape: Vec<u64>,
    datatype_name: String,
    datatype: Datatype,
    bytes: Bytes,
    /// JSON data as received, to be returned unchanged.
    json: Option<Value>,
}

async fn infer(call: &ApiCall, model: &str) -> Reply {
    if call.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::unsupported_encoding());
    }
    let (head, mut binary) = split_body(call)?;
    let request: InferRequest = serde_json::from_slice(&head).map_err(|error| {
        ApiError::invalid(format!("failed to parse the request JSON: {error}"), None)
    })?;
    if request.inputs.is_empty() {
        return Err(ApiError::invalid("the request has no inputs", None));
    }
    let mut tensors = Vec::with_capacity(request.inputs.len());
    for input in request.inputs {
        tensors.push(read_tensor(input, &mut binary)?);
    }
    // The sizes of the inputs must add up to the length of the body.
    if !binary.is_empty() {
        let message = format!("{} bytes of binary data belong to no input", binary.len());
        return Err(ApiError::invalid(message, None));
    }
    let tokens_max = call.replica.driver.config().context_tokens_max;
    let data = tensors.iter().map(|tensor| tensor.bytes.as_ref());
    prefill(call, &[prompt_of(data, tokens_max)]).await?;
    let outputs = choose_outputs(tensors, &request.outputs, request.parameters)?;
    write_reply(model, request.id, outputs)
}

/// Splits the body into its JSON part and the binary data after it.
fn split_body(call: &ApiCall) -> Result<(Bytes, Bytes), ApiError> {
    let mut body = call.body.clone();
    let Some(value) = call.headers.get(HEADER_LENGTH) else {
        return Ok((body, Bytes::new()));
    };
    let length = value.to_str().ok().and_then(|text| text.parse::<usize>().ok());
    match length.filter(|length| *length <= body.len()) {
        Some(length) => Ok((body.split_to(length), body)),
        None => Err(ApiError::invalid(format!("{HEADER_LENGTH} is not valid"), None)),
    }
}

fn read_tensor(input: InputHead, binary: &mut Bytes) -> Result<Tensor, ApiError> {
    let datatype = Datatype::parse(&input.datatype)?;
    let wanted = tensor::elements(&input.shape)?;
    let name = &input.name;
    let wrong = |message: &str| ApiError::invalid(format!("input '{name}' {message}"), None);
    let (elements, bytes) = match (&input.data, input.parameters.binary_data_size) {
        (Some(data), None) => tensor::encode(datatype, data)?,
        (None, Some(size)) if size <= binary.len() => {
            let bytes = binary.split_to(size);
            (tensor::count(datatype, &bytes)?, bytes)
        }
        (None, Some(_)) => return Err(wrong("has less binary data than it says")),
        (None, None) => return Err(wrong("has no data")),
        (Some(_), Some(_)) => return Err(wrong("has both JSON and binary data")),
    };
    if elements != wanted {
        return Err(wrong(&format!("has {elements} elements, its shape {wanted}")));
    }
    let InputHead { name, shape, datatype: datatype_name, data, .. } = input;
    Ok(Tensor { name, shape, datatype_name, datatype, bytes, json: data })
}

/// Returns the inputs' data as a prompt, which sets their cost in the engine.
pub(crate) fn prompt_of<'t>(data: impl Iterator<Item = &'t [u8]>, tokens_max: u32) -> Vec<u32> {
    let bytes = data.flat_map(|bytes| bytes.chunks(TOKEN_BYTES));
    let tokens = bytes.map(|chunk| {
        let mut token = [0; TOKEN_BYTES];
        token[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(token)
    });
    let mut tokens: Vec<u32> = tokens.take(tokens_max as usize).collect();
    // The engine refuses an empty prompt.
    if tokens.is_empty() {
        tokens.push(0);
    }
    tokens
}

/// Returns each output, with true if it is sent in binary form. A requested output takes the input
/// of the same name, or else the one at the same position.
fn choose_outputs(
    tensors: Vec<Tensor>,
    asked: &[OutputHead],
    defaults: Parameters,
) -> Result<Vec<(Tensor, bool)>, ApiError> {
    let binary_default = defaults.binary_data_output.unwrap_or(false);
    if asked.is_empty() {
        return Ok(tensors.into_iter().map(|tensor| (tensor, binary_default)).collect());
    }
    let choose = |(at, output): (usize, &OutputHead)| {
        let by_name = tensors.iter().find(|tensor| tensor.name == output.name);
        let source = by_name.or_else(|| tensors.get(at)).ok_or_else(|| {
            ApiError::invalid(format!("there is no input for output '{}'", output.name), None)
        })?;
        let tensor = Tensor {
            name: output.name.clone(),
            shape: source.shape.clone(),
            datatype_name: source.datatype_name.clone(),
            datatype: source.datatype,
            bytes: source.bytes.clone(),
            json: source.json.clone(),
        };
        Ok((tensor, output.parameters.binary_data.unwrap_or(binary_default)))
    };
    asked.iter().enumerate().map(choose).collect()
}

fn write_reply(model: &str, id: Option<String>, outputs: Vec<(Tensor, bool)>) -> Reply {
    let mut heads = Vec::with_capacity(outputs.len());
    let mut binary = BytesMut::new();
    let any_binary = outputs.iter().any(|(_, is_binary)| *is_binary);
    for (tensor, is_binary) in outputs {
        let mut head = Map::new();
        head.insert("name".to_owned(), tensor.name.into());
        head.insert("datatype".to_owned(), tensor.datatype_name.into());
        head.insert("shape".to_owned(), tensor.shape.into());
        if is_binary {
            let parameters = json!({ "binary_data_size": tensor.bytes.len() });
            head.insert("parameters".to_owned(), parameters);
            binary.extend_from_slice(&tensor.bytes);
        } else {
            let data = match tensor.json {
                Some(data) => data,
                None => tensor::decode(tensor.datatype, &tensor.bytes)?,
            };
            head.insert("data".to_owned(), data);
        }
        heads.push(Value::Object(head));
    }
    let mut reply = json!({ "model_name": model, "model_version": VERSION, "outputs": heads });
    if let Some(id) = id {
        reply["id"] = id.into();
    }
    if !any_binary {
        return Ok(ok(&reply));
    }
    let head = reply.to_string();
    let length = HeaderValue::from(head.len());
    let body = [head.as_bytes(), &binary].concat();
    let mut response = with_type(ReplyBody::whole(body), "application/octet-stream");
    response.headers_mut().insert(HEADER_LENGTH, length);
    Ok(response)
}
