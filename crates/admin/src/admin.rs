//! Answers requests to the admin API.

use std::sync::Arc;

use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use spillway_agreement::Agreement;
use tokio::sync::{Semaphore, watch};

use crate::access::{self, Credential};
use crate::answer::{self, Cluster};
use crate::call::{self, Call};
use crate::config::{AdminConfig, AdminRole};
use crate::endpoint::{self, Found, Operation};
use crate::error::ApiError;
use crate::explain::Explain;
use crate::openapi::openapi;
use crate::own_limits::OwnLimits;
use crate::reply::{Reply, json};
use crate::resource::Resource;

/// Answers requests to the admin API, for one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    agreement: Option<Arc<Agreement>>,
    explain: Option<Arc<dyn Explain>>,
    own_limits: Option<Arc<dyn OwnLimits>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Replaced whole; streams end when their tokens do.
    config: watch::Sender<Arc<AdminConfig>>,
    watchers: Arc<Semaphore>,
    /// One at a time: each holds the whole state.
    backups: Arc<Semaphore>,
}

impl Admin {
    /// An API over `agreement`. A node that is in no cluster has none: then every request but that
    /// for the OpenAPI document is answered with why.
    #[must_use]
    pub fn new(agreement: Option<Arc<Agreement>>, config: AdminConfig) -> Self {
        let watchers = Arc::new(Semaphore::new(config.watchers_max));
        let backups = Arc::new(Semaphore::new(1));
        let config = watch::Sender::new(Arc::new(config));
        let shared = Arc::new(Shared { config, watchers, backups });
        Self { agreement, explain: None, own_limits: None, shared }
    }

    /// The same with somebody who says where requests go. Without, `/v1/explain` says that nobody
    /// does.
    #[must_use]
    pub fn explaining(self, by: Arc<dyn Explain>) -> Self {
        Self { explain: Some(by), ..self }
    }

    /// The same for a node whose config file has limits.
    #[must_use]
    pub fn limiting(self, by: Arc<dyn OwnLimits>) -> Self {
        Self { own_limits: Some(by), ..self }
    }

    /// Goes by other tokens and names from now on, on connections that are open already, too. What is
    /// under way by a token that holds no more ends.
    pub fn replace(&self, config: AdminConfig) {
        self.shared.config.send_replace(Arc::new(config));
    }

    /// The tokens and names that hold now.
    #[must_use]
    pub fn config(&self) -> Arc<AdminConfig> {
        Arc::clone(&self.shared.config.borrow())
    }

    /// Whether whoever sends a request with this head may do what that role may: for what else is
    /// behind the same listener.
    ///
    /// # Errors
    /// The answer that says why not.
    pub fn check(&self, head: &http::request::Parts, role: AdminRole) -> Result<(), Box<Reply>> {
        let state = self.agreement.as_ref().map(|agreement| agreement.published());
        let caller = access::caller(head, &self.config(), state.as_deref());
        let checked = caller.and_then(|caller| access::check_role(&caller, role));
        checked.map_err(|error| Box::new(error.into_reply()))
    }

    /// Whether a request with this head names this listener: for what needs no token.
    ///
    /// # Errors
    /// The answer that says why not.
    pub fn check_host(&self, head: &http::request::Parts) -> Result<(), Box<Reply>> {
        let checked = access::check_host(head, &self.config());
        checked.map_err(|error| Box::new(error.into_reply()))
    }

    /// Answers one request for a path below `/v1/`. What goes wrong is an answer too.
    pub async fn answer(&self, request: Request<Incoming>) -> Reply {
        let answered = Box::pin(self.try_answer(request)).await;
        answered.unwrap_or_else(ApiError::into_reply)
    }

    async fn try_answer(&self, request: Request<Incoming>) -> Result<Reply, ApiError> {
        let (head, body) = request.into_parts();
        let config = &*self.config();
        let state = self.agreement.as_ref().map(|agreement| agreement.published());
        // First, so that who may not ask learns nothing, not even what there is.
        let caller = access::caller(&head, config, state.as_deref())?;
        let segments = call::segments(head.uri.path())?;
        let (endpoint, path) = match endpoint::find(&head.method, &segments) {
            Found::Endpoint(endpoint, path) => (endpoint, path),
            Found::OtherMethods(methods) => return Ok(other_methods(&methods)),
            Found::Nothing => return Err(no_path()),
        };
        access::check_role(&caller, endpoint.role)?;
        let credential = Credential::of(&head, self.shared.config.subscribe())?;
        if endpoint.operation == Operation::OpenApi {
            return Ok(json(StatusCode::OK, openapi()));
        }
        let call = Call::read((endpoint, path), caller, (head, body), config).await?;
        let state = self.agreement.as_ref().map(|agreement| agreement.published());
        // The body may have taken its time.
        if !credential.holds(state.as_deref()) {
            return Err(access::unauthorized("the token was revoked meanwhile"));
        }
        if endpoint.operation == Operation::Explain {
            return answer::explain(self.explain.as_deref(), &call).await;
        }
        let own_limits = self.own_limits.as_deref();
        if let (None, Some(own)) = (&self.agreement, own_limits) {
            match endpoint.operation {
                Operation::List(Resource::Limits) => return answer::limits_alone(own, &call, true),
                Operation::Show(Resource::Limits) => {
                    return answer::limits_alone(own, &call, false);
                }
                _ => {}
            }
        }
        let agreement = self.agreement.clone().ok_or_else(no_cluster)?;
        let cluster = Cluster {
            agreement,
            config,
            watchers: &self.shared.watchers,
            backups: &self.shared.backups,
            credential: &credential,
            own_limits,
        };
        answer::answer(&cluster, &call).await
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
