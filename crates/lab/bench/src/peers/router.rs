//! Options of the routers of SGLang and vLLM, which have one origin.

use std::net::SocketAddr;

use super::launch::Launch;
use crate::proxy::WORKERS;

/// Router with its policy and the words in which the two differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Router {
    /// Policy, by the router's name for it.
    pub(super) policy: &'static str,
    /// Command that starts the router; none where the program has no others.
    pub(super) command: Option<&'static str>,
    /// Level at which requests are not logged.
    pub(super) log_level: &'static str,
}

impl Router {
    /// Returns the launch of a router on `address`. Its metrics are at `metrics`: the default port
    /// may be in use.
    pub(super) fn launch(
        self,
        address: SocketAddr,
        metrics: SocketAddr,
        backends: &[SocketAddr],
    ) -> Launch {
        let mut arguments: Vec<String> = self.command.into_iter().map(str::to_owned).collect();
        let options = [
            ("--host", address.ip().to_string()),
            ("--port", address.port().to_string()),
            ("--prometheus-host", metrics.ip().to_string()),
            ("--prometheus-port", metrics.port().to_string()),
            ("--policy", self.policy.to_owned()),
            ("--log-level", self.log_level.to_owned()),
        ];
        for (option, value) in options {
            arguments.extend([option.to_owned(), value]);
        }
        arguments.push("--worker-urls".to_owned());
        arguments.extend(backends.iter().map(|backend| format!("http://{backend}")));
        // The number of threads has no option; both run on tokio, which reads this.
        let environment = vec![("TOKIO_WORKER_THREADS", WORKERS.to_string())];
        Launch { config: None, arguments, environment }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_comes_first_and_the_replicas_last() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let router = Router { policy: "cache_aware", command: Some("launch"), log_level: "warn" };
        let launch = router.launch(address(80), address(90), &[address(81), address(82)]);
        let line = launch.arguments.join(" ");
        assert!(line.starts_with("launch --host 127.0.0.1 --port 80 "), "{line}");
        assert!(line.contains(" --policy cache_aware "), "{line}");
        assert!(line.contains(" --prometheus-port 90 "), "{line}");
        let workers = " --worker-urls http://127.0.0.1:81 http://127.0.0.1:82";
        assert!(line.ends_with(workers), "{line}");
    }
}
