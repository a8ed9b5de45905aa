//! Config of LiteLLM.

use std::net::SocketAddr;

use super::launch::Launch;
use crate::{proxy::WORKERS, request::MODEL};

const FILE: &str = "litellm.yaml";

/// Tokens that are alike in one stream before LiteLLM ends it: more than any stream here has.
const TOKENS_ALIKE_MAX: u32 = 1_000_000;

/// Returns the launch of a LiteLLM on `address`, without a database and without keys.
pub(super) fn launch(address: SocketAddr, backends: &[SocketAddr]) -> Launch {
    // The other proxies ask for no key, either.
    let mut config = "general_settings:\n\
         \x20 dangerously_permit_weak_or_unset_master_key: true\n\
         model_list:\n"
        .to_owned();
    for backend in backends {
        config.push_str(&format!(
            "- model_name: {MODEL}\n  litellm_params:\n    model: openai/{MODEL}\n\
             \x20   api_base: http://{backend}/v1\n    api_key: none\n"
        ));
    }
    let options = [
        ("--host", address.ip().to_string()),
        ("--port", address.port().to_string()),
        ("--num_workers", WORKERS.to_string()),
        ("--config", FILE.to_owned()),
    ];
    let arguments = options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    let environment = vec![
        // Otherwise each request is logged.
        ("LITELLM_LOG", "ERROR".to_owned()),
        // Otherwise it fetches prices from the network as it starts.
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_owned()),
        // Otherwise it ends a stream of a hundred equal tokens, as all of a backend's are.
        ("REPEATED_STREAMING_CHUNK_LIMIT", TOKENS_ALIKE_MAX.to_string()),
    ];
    Launch { config: Some((FILE, config)), arguments: arguments.collect(), environment }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_replicas_serve_the_same_model() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let launch = launch(address(80), &[address(81), address(82)]);
        let (_, config) = launch.config.unwrap();
        assert_eq!(config.matches("- model_name: tiny\n").count(), 2, "{config}");
        assert!(config.contains("    api_base: http://127.0.0.1:82/v1\n"), "{config}");
        let line = launch.arguments.join(" ");
        assert_eq!(line, "--host 127.0.0.1 --port 80 --num_workers 2 --config litellm.yaml");
    }
}
