//! Config of HAProxy.

use std::net::SocketAddr;

use super::launch::Launch;
use crate::proxy::WORKERS;

const FILE: &str = "haproxy.cfg";

/// Returns the launch of a HAProxy on `address`: least connections, connections to replicas shared
/// by all clients, no log. Without `http-no-delay` the head of a stream waits for more to send: 86 ms were
/// measured until the first token.
pub(super) fn launch(address: SocketAddr, backends: &[SocketAddr]) -> Launch {
    let mut config = format!(
        "global\n  nbthread {WORKERS}\n  maxconn 8192\n\
         defaults\n  mode http\n  http-reuse always\n  option http-no-delay\n\
         \x20 timeout connect 5s\n  timeout client 300s\n  timeout server 300s\n\
         frontend clients\n  bind {address}\n  default_backend replicas\n\
         backend replicas\n  balance leastconn\n"
    );
    for (index, backend) in backends.iter().enumerate() {
        config.push_str(&format!("  server replica-{index} {backend}\n"));
    }
    // `-db` keeps it in the foreground, as one process.
    let arguments = ["-db", "-f", FILE].map(str::to_owned).to_vec();
    Launch { config: Some((FILE, config)), arguments, ..Launch::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replica_is_a_server_and_threads_are_as_many_as_workers_of_nginx() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let launch = launch(address(80), &[address(81), address(82)]);
        let (_, config) = launch.config.unwrap();
        assert!(config.contains("nbthread 2\n"), "{config}");
        assert!(config.contains("  option http-no-delay\n"), "{config}");
        assert!(config.contains("  bind 127.0.0.1:80\n"), "{config}");
        let servers = "  server replica-0 127.0.0.1:81\n  server replica-1 127.0.0.1:82\n";
        assert!(config.ends_with(servers), "{config}");
    }
}
