//! Warm-up of a new replica's caches before it gets requests.

use std::time::Duration;

use spillway_types::ModelName;

use crate::health_check::one_token;
use crate::http::{HttpClient, HttpServer, RequestError};
use crate::identity::{IdentityCheck, ModelsReading};
use crate::target::ReplicaTarget;

/// Error of a warm-up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prompt {prompt} to model {model}: {failure}")]
pub struct WarmUpError {
    /// Model that was asked for.
    pub model: ModelName,
    /// Position of the prompt that failed.
    pub prompt: usize,
    /// Reason of the failure.
    pub failure: RequestError,
}

/// Sends each prompt to each of the replica's models as a chat completion of one token, one after
/// the other. Returns when the last is answered. `bound` is the time limit of each prompt.
///
/// # Errors
/// Returns the first prompt that failed; later prompts were not sent. The caller decides if it
/// tries again or goes on without.
pub async fn warm_up(
    target: &ReplicaTarget,
    prompts: &[String],
    bound: Duration,
) -> Result<(), WarmUpError> {
    let api = target.server();
    let models = models_of(target, &api, bound).await;
    let mut client = HttpClient::new(api);
    for model in &models {
        for (index, prompt) in prompts.iter().enumerate() {
            one_token(&mut client, model, prompt, bound).await.map_err(|failure| WarmUpError {
                model: model.clone(),
                prompt: index,
                failure,
            })?;
        }
    }
    Ok(())
}

/// Returns the models of a replica, read from its page if the target names none.
async fn models_of(target: &ReplicaTarget, api: &HttpServer, bound: Duration) -> Vec<ModelName> {
    match target.identity {
        Some(check) if target.models.is_empty() => {
            let check = IdentityCheck { timeout: bound, ..check };
            match check.read_models(None, &mut HttpClient::new(api.clone())).await {
                ModelsReading::Page(page) => page.ids().cloned().collect(),
                ModelsReading::NoPage | ModelsReading::Denied(_) | ModelsReading::NoAnswer => {
                    Vec::new()
                }
            }
        }
        _ => target.models.clone(),
    }
}
