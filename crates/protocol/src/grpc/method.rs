//! What a gRPC path calls.

use http::{HeaderMap, header};

/// The service of KServe V2.
const KSERVE: &str = "inference.GRPCInferenceService";
/// gRPC's own health service.
const HEALTH: &str = "grpc.health.v1.Health";

/// A method, as far as it makes a difference here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcMethod {
    /// `ServerLive`: whether this process runs.
    ServerLive,
    /// `ServerReady`: whether this process can serve.
    ServerReady,
    /// `ServerMetadata`.
    ServerMetadata,
    /// `grpc.health.v1.Health/Check`.
    HealthCheck,
    /// One message in that names a model, one out.
    Model,
    /// `ModelStreamInfer`: messages both ways, each of which names a model.
    ModelStream,
    /// A method of a known service that the gateway does not offer, and why.
    Refused(&'static str),
    /// No service that is known here.
    Unknown,
}

impl GrpcMethod {
    /// Reads a path, which is compared as it was sent.
    #[must_use]
    pub fn classify(path: &str) -> Self {
        let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/'))
        else {
            return Self::Unknown;
        };
        match service {
            KSERVE => Self::of_kserve(method),
            HEALTH if method == "Check" => Self::HealthCheck,
            HEALTH => Self::Refused("of grpc.health.v1.Health only Check is served here"),
            _ => Self::Unknown,
        }
    }

    /// Whether the gateway answers it by itself.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(
            self,
            Self::ServerLive | Self::ServerReady | Self::ServerMetadata | Self::HealthCheck
        )
    }

    /// Whether a service is one whose methods are known here.
    #[must_use]
    pub fn knows_service(service: &str) -> bool {
        matches!(service, KSERVE | HEALTH)
    }

    fn of_kserve(method: &str) -> Self {
        match method {
            "ServerLive" => Self::ServerLive,
            "ServerReady" => Self::ServerReady,
            "ServerMetadata" => Self::ServerMetadata,
            "ModelReady" | "ModelMetadata" | "ModelConfig" | "ModelStatistics" | "ModelInfer" => {
                Self::Model
            }
            "ModelStreamInfer" => Self::ModelStream,
            "RepositoryIndex" | "RepositoryModelLoad" | "RepositoryModelUnload" => Self::Refused(
                "a model repository belongs to one model server: ask that server, not the gateway",
            ),
            _ => Self::Refused(
                "this method manages one model server: ask that server, not the gateway",
            ),
        }
    }
}

/// Whether a message's content type is gRPC's; gRPC-Web, which is another protocol, is not.
#[must_use]
pub fn speaks_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_told_apart() {
        let kserve = |method: &str| GrpcMethod::classify(&format!("/{KSERVE}/{method}"));
        assert_eq!(kserve("ServerLive"), GrpcMethod::ServerLive);
        assert_eq!(kserve("ServerReady"), GrpcMethod::ServerReady);
        assert_eq!(kserve("ServerMetadata"), GrpcMethod::ServerMetadata);
        assert_eq!(kserve("ModelStreamInfer"), GrpcMethod::ModelStream);
        for method in
            ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer"]
        {
            assert_eq!(kserve(method), GrpcMethod::Model, "{method}");
        }
        for method in ["RepositoryIndex", "RepositoryModelLoad", "LogSettings", "modelinfer", ""] {
            assert!(matches!(kserve(method), GrpcMethod::Refused(_)), "{method}");
        }
    }

    #[test]
    fn of_the_health_service_only_check_is_known() {
        assert_eq!(GrpcMethod::classify("/grpc.health.v1.Health/Check"), GrpcMethod::HealthCheck);
        let watch = GrpcMethod::classify("/grpc.health.v1.Health/Watch");
        assert!(matches!(watch, GrpcMethod::Refused(_)));
    }

    #[test]
    fn paths_are_compared_as_sent() {
        for path in [
            "",
            "/",
            "/inference.GRPCInferenceService",
            "inference.GRPCInferenceService/ModelInfer",
            "//inference.GRPCInferenceService/ModelInfer",
            "/my.Service/Call",
        ] {
            assert_eq!(GrpcMethod::classify(path), GrpcMethod::Unknown, "{path}");
        }
        for method in ["ModelInfer/", "Model%49nfer", "ModelInfer/x"] {
            let path = format!("/{KSERVE}/{method}");
            assert!(matches!(GrpcMethod::classify(&path), GrpcMethod::Refused(_)), "{path}");
        }
    }

    #[test]
    fn the_content_type_decides_and_grpc_web_is_none() {
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(value));
            speaks_grpc(&headers)
        };
        for value in ["application/grpc", "application/grpc+proto", "application/grpc;a=b"] {
            assert!(check(value), "{value}");
        }
        for value in ["application/grpc-web", "application/grpc-web+proto", "text/html", ""] {
            assert!(!check(value), "{value}");
        }
        assert!(!speaks_grpc(&HeaderMap::new()));
    }
}
