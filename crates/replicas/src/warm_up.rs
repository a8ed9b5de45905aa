//! Fills a new replica's caches before it gets requests.

use std::time::Duration;

use spillway_types::ModelName;

use crate::check::one_token;
use crate::http::{Client, Failure};
use crate::identity::{IdentityCheck, ModelsReading};
use crate::target::Target;

/// A replica that could not be warmed up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prompt {prompt} to model {model}: {failure}")]
pub struct WarmUpError {
    /// The model that was asked for.
    pub model: ModelName,
    /// Position of the prompt that failed.
    pub prompt: usize,
    /// Why.
    pub failure: Failure,
}

/// Sends each prompt to each of the replica's models over chat completions, one token each and one
/// after the other, and returns when the last is answered. `bound` is for each prompt.
///
/// # Errors
/// The first prompt that failed; those after it were not sent. Whether to try again, or to do
/// without, is for the caller.
pub async fn warm_up(
    target: &Target,
    prompts: &[String],
    bound: Duration,
) -> Result<(), WarmUpError> {
    let mut client = Client::new(target.server(None));
    for model in &models_of(target, bound).await {
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

/// The models of a replica: it is asked for them where nobody said.
async fn models_of(target: &Target, bound: Duration) -> Vec<ModelName> {
    match target.identity {
        Some(check) if target.models.is_empty() => {
            let check = IdentityCheck { timeout: bound, ..check };
            match check.read_models(None, target).await {
                ModelsReading::Page(page) => page.ids().cloned().collect(),
                ModelsReading::NoPage | ModelsReading::NoAnswer => Vec::new(),
            }
        }
        _ => target.models.clone(),
    }
}
