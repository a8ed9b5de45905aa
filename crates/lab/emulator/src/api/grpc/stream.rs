//! Method `ModelStreamInfer`: requests are answered in turn. A request gets one reply or, if it
//! asks for tokens, one reply per token.

use std::collections::BTreeMap;
use std::future::poll_fn;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::infer::{check_inputs, infer};
use super::{Messages, VERSION, check_model, decode, frame};
use crate::api::sampling::Sampling;
use crate::api::{ApiCall, ApiError, generate, v2};
use crate::body::ReplyBody;
use crate::driver::DriverProgress;
use crate::kserve::{
    InferRequest, InferResponse, Parameter, ParameterValue, StreamInferResponse, Tensor,
};
use crate::pieces::{Pieces, StreamPiece};

/// Number of replies that wait for the connection; when it is reached, the stream waits too.
const REPLIES_MAX: usize = 16;
/// Parameter of a request that asks for tokens.
const TOKENS: &str = "max_tokens";
/// Parameter that marks the last reply to a request, with Triton's name.
const FINAL: &str = "triton_final_response";

/// Returns the reply to a stream of requests, which arrive while the reply is sent.
pub(super) fn reply(
    call: &ApiCall,
    body: Incoming,
    deadline: Option<Instant>,
) -> Response<ReplyBody> {
    let (sender, receiver) = mpsc::channel(REPLIES_MAX);
    let work = serve(call.without_ticket(), body, deadline, sender);
    let task = call.replica.tasks.spawn(work).abort_handle();
    frame::head(ReplyBody::messages(Pieces { receiver, task }))
}

async fn serve(
    call: ApiCall,
    body: Incoming,
    deadline: Option<Instant>,
    replies: mpsc::Sender<StreamPiece>,
) {
    let answers = answer_all(&call, body, &replies);
    let ended = match deadline {
        None => answers.await,
        Some(deadline) => tokio::time::timeout_at(deadline, answers)
            .await
            .unwrap_or_else(|_| Err(ApiError::too_late())),
    };
    let trailers = match ended {
        Ok(()) => frame::ok_trailers(),
        Err(error) => error.into_trailers(),
    };
    // The send fails only if the client has disconnected.
    drop(replies.send(StreamPiece::End(trailers)).await);
}

async fn answer_all(
    call: &ApiCall,
    body: Incoming,
    replies: &mpsc::Sender<StreamPiece>,
) -> Result<(), ApiError> {
    let mut messages = Messages::new(body, call.replica.body_bytes_max);
    while let Some(message) = messages.next().await? {
        let request: InferRequest = decode(message)?;
        let id = request.id.clone();
        if let Err(error) = answer_one(call, request, replies).await {
            // A bad request does not end the stream for the others.
            let infer_response = Some(InferResponse { id, ..InferResponse::default() });
            let reply = StreamInferResponse { error_message: error.message(), infer_response };
            drop(replies.send(StreamPiece::Message(frame::frame(&reply))).await);
        }
    }
    Ok(())
}

async fn answer_one(
    call: &ApiCall,
    request: InferRequest,
    replies: &mpsc::Sender<StreamPiece>,
) -> Result<(), ApiError> {
    let tokens = request.parameters.get(TOKENS).and_then(|parameter| match parameter.value {
        Some(ParameterValue::Int(tokens)) => u32::try_from(tokens).ok(),
        Some(ParameterValue::Uint(tokens)) => u32::try_from(tokens).ok(),
        _ => None,
    });
    match tokens {
        Some(tokens) => generate(call, &request, tokens, replies).await,
        None => {
            let response = infer(call, request).await?;
            send(replies, response).await;
            Ok(())
        }
    }
}

async fn generate(
    call: &ApiCall,
    request: &InferRequest,
    tokens: u32,
    replies: &mpsc::Sender<StreamPiece>,
) -> Result<(), ApiError> {
    check_model(call, &request.model_name, &request.model_version)?;
    let data = check_inputs(request)?;
    let tokens_max = call.replica.driver.config().context_tokens_max;
    // Prompt and answer share the model's context.
    let prompt = v2::prompt_of(data.iter().map(Bytes::as_ref), tokens_max.saturating_sub(tokens));
    let started = generate::start(call, &prompt, &Sampling::exactly(tokens))?;
    for mut track in started.tracks {
        let mut next_token = 0;
        while let DriverProgress::Token = poll_fn(|cx| track.generation.poll_progress(cx)).await? {
            let text = track.answer.piece(next_token);
            next_token += 1;
            let is_last = next_token == track.answer.tokens;
            send(replies, token_reply(request, text, is_last)).await;
        }
    }
    Ok(())
}

fn token_reply(request: &InferRequest, text: &str, is_last: bool) -> InferResponse {
    // Raw BYTES tensors have the length before each string.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes();
    let output = Tensor {
        name: "text_output".to_owned(),
        datatype: "BYTES".to_owned(),
        shape: vec![1],
        ..Tensor::default()
    };
    InferResponse {
        model_name: request.model_name.clone(),
        model_version: VERSION.to_owned(),
        id: request.id.clone(),
        parameters: BTreeMap::from([(
            FINAL.to_owned(),
            Parameter::from(ParameterValue::Bool(is_last)),
        )]),
        outputs: vec![output],
        raw_output_contents: vec![[&length[..], text.as_bytes()].concat().into()],
    }
}

/// Sends a reply, and waits for room. If the client disconnects, the whole task is aborted.
async fn send(replies: &mpsc::Sender<StreamPiece>, response: InferResponse) {
    let reply =
        StreamInferResponse { error_message: String::new(), infer_response: Some(response) };
    drop(replies.send(StreamPiece::Message(frame::frame(&reply))).await);
}
