//! Config of Envoy.

use std::net::SocketAddr;

use super::launch::Launch;
use crate::proxy::WORKERS;

const FILE: &str = "envoy.yaml";

/// Returns the launch of an Envoy on `address`: least requests (of two), no time limit of a request
/// that streams, no access log.
pub(super) fn launch(address: SocketAddr, backends: &[SocketAddr]) -> Launch {
    let listener = socket(address);
    let mut config = format!(
        r#"static_resources:
  listeners:
  - address: {listener}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route: {{ cluster: replicas, timeout: 0s }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: replicas
    type: STATIC
    connect_timeout: 5s
    lb_policy: LEAST_REQUEST
    circuit_breakers:
      thresholds:
      - {{ max_connections: 8192, max_pending_requests: 8192, max_requests: 8192 }}
    load_assignment:
      cluster_name: replicas
      endpoints:
      - lb_endpoints:
"#
    );
    for backend in backends {
        config.push_str(&format!("        - endpoint: {{ address: {} }}\n", socket(*backend)));
    }
    let workers = WORKERS.to_string();
    // Shared memory for a hot restart would be that of any other Envoy on the machine.
    let arguments = [
        "--config-path",
        FILE,
        "--concurrency",
        &workers,
        "--disable-hot-restart",
        "--log-level",
        "error",
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    Launch { config: Some((FILE, config)), arguments, ..Launch::default() }
}

fn socket(address: SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!("{{ socket_address: {{ address: {ip}, port_value: {port} }} }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replica_is_an_endpoint_and_threads_are_as_many_as_workers_of_nginx() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let launch = launch(address(80), &[address(81), address(82)]);
        let (_, config) = launch.config.unwrap();
        let at =
            |port| format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}");
        assert!(config.contains(&format!("  - address: {}\n", at(80))), "{config}");
        for port in [81, 82] {
            let endpoint = format!("        - endpoint: {{ address: {} }}\n", at(port));
            assert!(config.contains(&endpoint), "{config}");
        }
        assert!(launch.arguments.windows(2).any(|pair| pair == ["--concurrency", "2"]));
    }
}
