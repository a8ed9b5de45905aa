//! Method `ModelInfer`: the outputs are the inputs.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

use super::{VERSION, check_model};
use crate::api::generate::prefill;
use crate::api::tensor::{self, Datatype};
use crate::api::{ApiCall, ApiError, v2};
use crate::kserve::{InferRequest, InferResponse, Tensor};

/// Answers one request, which may be one of a stream.
pub(super) async fn infer(
    call: &ApiCall,
    request: InferRequest,
) -> Result<InferResponse, ApiError> {
    check_model(call, &request.model_name, &request.model_version)?;
    let data = check_inputs(&request)?;
    let tokens_max = call.replica.driver.config().context_tokens_max;
    prefill(call, &[v2::prompt_of(data.iter().map(Bytes::as_ref), tokens_max)]).await?;
    let (outputs, raw_output_contents) = choose_outputs(&request)?;
    Ok(InferResponse {
        model_name: request.model_name,
        model_version: VERSION.to_owned(),
        id: request.id,
        parameters: BTreeMap::new(),
        outputs,
        raw_output_contents,
    })
}

/// Returns the data of each input.
///
/// # Errors
/// Returns an error if there are no inputs, or if the data of one does not fit its shape.
pub(super) fn check_inputs(request: &InferRequest) -> Result<Vec<Bytes>, ApiError> {
    if request.inputs.is_empty() {
        return Err(ApiError::invalid("the request has no inputs", None));
    }
    let raw = &request.raw_input_contents;
    if !raw.is_empty() && raw.len() != request.inputs.len() {
        let message = format!("{} inputs, but data for {}", request.inputs.len(), raw.len());
        return Err(ApiError::invalid(message, None));
    }
    let inputs = request.inputs.iter().enumerate();
    inputs.map(|(at, input)| check_input(input, raw.get(at))).collect()
}

fn check_input(input: &Tensor, raw: Option<&Bytes>) -> Result<Bytes, ApiError> {
    let datatype = Datatype::parse(&input.datatype)?;
    let negative =
        |_| ApiError::invalid(format!("the shape of '{}' is negative", input.name), None);
    let shape: Result<Vec<u64>, _> = input.shape.iter().map(|size| (*size).try_into()).collect();
    let wanted = tensor::elements(&shape.map_err(negative)?)?;
    let (elements, data) = match (raw, &input.contents) {
        (Some(raw), None) => (tensor::count(datatype, raw)?, raw.clone()),
        // Typed contents only serve as prompt, so any stable encoding will do.
        (None, Some(contents)) => (contents.count(), contents.encode_to_vec().into()),
        // A tensor without elements needs no data.
        (None, None) => (0, Bytes::new()),
        (Some(_), Some(_)) => {
            let message = format!("input '{}' has its data twice", input.name);
            return Err(ApiError::invalid(message, None));
        }
    };
    if elements == wanted {
        return Ok(data);
    }
    let message = format!("input '{}' has {elements} elements, its shape {wanted}", input.name);
    Err(ApiError::invalid(message, None))
}

/// Returns the inputs as outputs. A requested output takes the input of the same name, or else the
/// one at the same position.
fn choose_outputs(request: &InferRequest) -> Result<(Vec<Tensor>, Vec<Bytes>), ApiError> {
    let InferRequest { inputs, outputs, raw_input_contents: raw, .. } = request;
    if outputs.is_empty() {
        return Ok((inputs.clone(), raw.clone()));
    }
    let mut chosen = (Vec::new(), Vec::new());
    for (at, output) in outputs.iter().enumerate() {
        let by_name = inputs.iter().position(|input| input.name == output.name);
        let source = by_name.unwrap_or(at);
        let input = inputs.get(source).ok_or_else(|| {
            ApiError::invalid(format!("there is no input for output '{}'", output.name), None)
        })?;
        chosen.0.push(Tensor { name: output.name.clone(), ..input.clone() });
        chosen.1.extend(raw.get(source).cloned());
    }
    Ok(chosen)
}
