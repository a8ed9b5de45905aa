//! Methods that gRPC paths call.

use http::{HeaderMap, header};

use crate::media_type::{ends_type, strip_type};

/// Service of KServe V2.
const KSERVE: &str = "inference.GRPCInferenceService";
/// Health service of gRPC.
const HEALTH: &str = "grpc.health.v1.Health";

/// Method, as far as the gateway treats it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcMethod {
    /// `ServerLive`: liveness of this process.
    ServerLive,
    /// `ServerReady`: readiness of this process.
    ServerReady,
    /// `ServerMetadata`: metadata of the server.
    ServerMetadata,
    /// `grpc.health.v1.Health/Check`: health of a service.
    HealthCheck,
    /// Method with one request, which names a model, and one reply.
    Model,
    /// `ModelStreamInfer`: messages in both directions; each request names a model.
    ModelStream,
    /// Method of a known service that the gateway does not offer, with the reason.
    Refused(&'static str),
    /// Method of an unknown service.
    Unknown,
}

impl GrpcMethod {
    /// Classifies a path, which is compared as sent.
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

    /// Returns true if the gateway itself answers the method.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(
            self,
            Self::ServerLive | Self::ServerReady | Self::ServerMetadata | Self::HealthCheck
        )
    }

    /// Returns true if the methods of a service are known here.
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

/// Returns true if the content type is gRPC's. gRPC-Web, which is another protocol, is not
/// accepted.
#[must_use]
pub fn speaks_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let rest = content_type.and_then(|value| strip_type(value.as_bytes(), "application/grpc"));
    // The suffix names the format of the messages.
    rest.is_some_and(|rest| rest.starts_with(b"+") || ends_type(rest))
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
        for value in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;a=b",
            "Application/gRPC+proto ; a=b",
        ] {
            assert!(check(value), "{value}");
        }
        for value in ["application/grpc-web", "application/grpc-web+proto", "text/html", ""] {
            assert!(!check(value), "{value}");
        }
        assert!(!speaks_grpc(&HeaderMap::new()));
    }
}
