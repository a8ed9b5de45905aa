//! Entry point of the admin API.

use std::sync::Arc;

use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use spillway_control_plane::ControlPlane;
use tokio::sync::{Semaphore, watch};

use crate::access::{self, Credential};
use crate::answer::{self, Cluster};
use crate::call::{self, AdminCall};
use crate::config::{AdminConfig, AdminRole};
use crate::endpoint::{self, EndpointMatch, Operation};
use crate::error::ApiError;
use crate::explain::Explain;
use crate::live::{Live, LiveSource};
use crate::openapi::openapi;
use crate::overview::Overview;
use crate::own_limits::OwnLimits;
use crate::reply::{Reply, json};
use crate::requests::Requests;
use crate::resource::Resource;
use crate::steering::Steered;

/// Admin API of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    control_plane: Option<Arc<ControlPlane>>,
    explain: Option<Arc<dyn Explain>>,
    own_limits: Option<Arc<dyn OwnLimits>>,
    steered: Option<Arc<dyn Steered>>,
    overview: Option<Arc<dyn Overview>>,
    requests: Option<Arc<dyn Requests>>,
    shared: Arc<AdminShared>,
}

#[derive(Debug)]
struct AdminShared {
    /// Config in use; replaced as a whole. Streams watch it and end when their token becomes
    /// invalid.
    config: watch::Sender<Arc<AdminConfig>>,
    watchers: Arc<Semaphore>,
    live: Live,
    /// A single permit: each backup holds the whole state in memory.
    backups: Arc<Semaphore>,
}

impl Admin {
    /// Makes the API of `control_plane`. A node outside any cluster has none: every request that
    /// needs one gets an error that says so.
    #[must_use]
    pub fn new(control_plane: Option<Arc<ControlPlane>>, config: AdminConfig) -> Self {
        let watchers = Arc::new(Semaphore::new(config.watchers_max));
        let backups = Arc::new(Semaphore::new(1));
        let live = Live::new(config.live_max);
        let config = watch::Sender::new(Arc::new(config));
        let shared = Arc::new(AdminShared { config, watchers, live, backups });
        Self {
            control_plane,
            explain: None,
            own_limits: None,
            steered: None,
            overview: None,
            requests: None,
            shared,
        }
    }

    /// Adds the service behind `/v1/explain`. Without it, that path answers with an error.
    #[must_use]
    pub fn explaining(self, by: Arc<dyn Explain>) -> Self {
        Self { explain: Some(by), ..self }
    }

    /// Adds the memory of requests behind `/v1/requests`. Without it, that path answers with an
    /// error.
    #[must_use]
    pub fn remembering(self, by: Arc<dyn Requests>) -> Self {
        Self { requests: Some(by), ..self }
    }

    /// Adds the limits of the node's config file.
    #[must_use]
    pub fn limiting(self, by: Arc<dyn OwnLimits>) -> Self {
        Self { own_limits: Some(by), ..self }
    }

    /// Adds the service behind `/v1/steering`, which knows the regions that take clients.
    #[must_use]
    pub fn steering(self, by: Arc<dyn Steered>) -> Self {
        Self { steered: Some(by), ..self }
    }

    /// Adds the service behind `/v1/node`, `/v1/world` and `/v1/usage`.
    #[must_use]
    pub fn overviewing(self, by: Arc<dyn Overview>) -> Self {
        Self { overview: Some(by), ..self }
    }

    /// Replaces tokens and names, for open connections, too. Requests in progress end if their
    /// token is no longer valid.
    pub fn replace(&self, config: AdminConfig) {
        self.shared.config.send_replace(Arc::new(config));
    }

    /// Returns the config in use.
    #[must_use]
    pub fn config(&self) -> Arc<AdminConfig> {
        Arc::clone(&self.shared.config.borrow())
    }

    /// Checks that the sender of a request with this head has the role. For other services behind
    /// the same listener.
    ///
    /// # Errors
    /// Returns the answer that says why not.
    pub fn check(&self, head: &http::request::Parts, role: AdminRole) -> Result<(), Box<Reply>> {
        let state = self.control_plane.as_ref().map(|control_plane| control_plane.published());
        let caller = access::caller(head, &self.config(), state.as_deref());
        let checked = caller.and_then(|caller| access::check_role(&caller, role));
        checked.map_err(|error| Box::new(error.into_reply()))
    }

    /// Checks that a request with this head names this listener. For services that need no token.
    ///
    /// # Errors
    /// Returns the answer that says why not.
    pub fn check_host(&self, head: &http::request::Parts) -> Result<(), Box<Reply>> {
        let checked = access::check_host(head, &self.config());
        checked.map_err(|error| Box::new(error.into_reply()))
    }

    /// Answers one request for a path below `/v1/`. Every failure becomes an answer, too.
    pub async fn answer(&self, request: Request<Incoming>) -> Reply {
        let answered = Box::pin(self.try_answer(request)).await;
        answered.unwrap_or_else(ApiError::into_reply)
    }

    async fn try_answer(&self, request: Request<Incoming>) -> Result<Reply, ApiError> {
        let (head, body) = request.into_parts();
        let config = &*self.config();
        let state = self.control_plane.as_ref().map(|control_plane| control_plane.published());
        // First, so that a caller without rights learns nothing, not even which paths exist.
        let caller = access::caller(&head, config, state.as_deref())?;
        let segments = call::segments(head.uri.path())?;
        let (endpoint, path) = match endpoint::find(&head.method, &segments) {
            EndpointMatch::Endpoint(endpoint, path) => (endpoint, path),
            EndpointMatch::OtherMethods(methods) => return Ok(other_methods(&methods)),
            EndpointMatch::Nothing => return Err(no_path()),
        };
        // Before the body is read, so that only a caller with the role makes this node hold one.
        access::check_role(&caller, endpoint.role)?;
        let credential = Credential::of(&head, self.shared.config.subscribe())?;
        if endpoint.operation == Operation::OpenApi {
            return Ok(json(StatusCode::OK, openapi()));
        }
        let call = AdminCall::read(endpoint, path, caller, (head, body), config).await?;
        let state = self.control_plane.as_ref().map(|control_plane| control_plane.published());
        // Checked again, since the body may have taken long to arrive.
        if !credential.holds(state.as_deref()) {
            return Err(access::unauthorized("the token was revoked meanwhile"));
        }
        if endpoint.operation == Operation::Live {
            return self.live(&call, credential);
        }
        if let Some(answered) = self.answer_alone(&call).await {
            return answered;
        }
        let own_limits = self.own_limits.as_deref();
        let control_plane = self.control_plane.clone().ok_or_else(no_cluster)?;
        let cluster = Cluster {
            control_plane,
            config,
            watchers: &self.shared.watchers,
            backups: &self.shared.backups,
            credential: &credential,
            own_limits,
        };
        answer::answer(&cluster, &call).await
    }

    /// Begins a stream of what happens on this node; needs no cluster.
    fn live(&self, call: &AdminCall, credential: Credential) -> Result<Reply, ApiError> {
        let unknown = || ApiError::internal("nobody here knows of the node");
        let overview = self.overview.clone().ok_or_else(unknown)?;
        let source = LiveSource { overview, control_plane: self.control_plane.clone() };
        self.shared.live.stream(source, &call.caller, credential)
    }

    /// Answers from this node's own knowledge, which needs no cluster; `None` if the request is
    /// about the cluster's state.
    async fn answer_alone(&self, call: &AdminCall) -> Option<Result<Reply, ApiError>> {
        let overview = self.overview.as_deref();
        match call.endpoint.operation {
            Operation::Explain => Some(answer::explain(self.explain.as_deref(), call).await),
            Operation::Steering => Some(answer::steering(self.steered.as_deref())),
            Operation::Node => Some(answer::node(overview, self.control_plane.as_deref()).await),
            Operation::World => Some(answer::world(overview)),
            Operation::Usage => Some(answer::usage(overview, call).await),
            Operation::Requests => Some(answer::requests(self.requests.as_deref(), call)),
            // A node outside any cluster can still show the limits of its config file.
            operation if self.control_plane.is_none() => {
                let own = self.own_limits.as_deref()?;
                match operation {
                    Operation::List(Resource::Limits) => {
                        Some(answer::limits_alone(own, call, true))
                    }
                    Operation::Show(Resource::Limits) => {
                        Some(answer::limits_alone(own, call, false))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn other_methods(methods: &[&http::Method]) -> Reply {
    let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
    let allowed = names.join(", ");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let cause = "the path does not take this method";
    let mut reply =
        ApiError::new(status, "method_not_allowed", cause, format!("use {allowed}")).into_reply();
    if let Ok(value) = HeaderValue::from_str(&allowed) {
        reply.headers_mut().insert(header::ALLOW, value);
    }
    reply
}

fn no_path() -> ApiError {
    let remedy = "look into /v1/openapi.json";
    ApiError::new(StatusCode::NOT_FOUND, "no_such_path", "there is no such path", remedy)
}

fn no_cluster() -> ApiError {
    let remedy =
        "give it `data` in [cluster] and a [[peer]] for each other node, or ask another node";
    let cause = "this node is in no cluster that agrees on anything";
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_cluster", cause, remedy)
}
