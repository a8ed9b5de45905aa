//! Entry point of the admin API.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use spillway_control_plane::ControlPlane;
use spillway_rate_limit::OwnLimits;
use tokio::sync::{Semaphore, watch};

use crate::access::{self, Credential};
use crate::all_nodes::AllNodes;
use crate::answer::{self, Cluster};
use crate::call::{self, AdminCall};
use crate::config::{AdminConfig, AdminRole};
use crate::endpoint::{self, EndpointMatch, Operation};
use crate::error::ApiError;
use crate::explain::Explain;
use crate::live::{Live, LiveSource};
use crate::openapi::openapi;
use crate::orders::{Orders, Recorded};
use crate::overview::Overview;
use crate::reasons::ReasonsAnswer;
use crate::reply::{Reply, json};
use crate::requests::Requests;
use crate::resource::Resource;
use crate::route_check::RouteCheck;
use crate::steering::Steered;

/// Admin API of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    control_plane: Option<Arc<ControlPlane>>,
    explain: Option<Arc<dyn Explain>>,
    own_limits: Option<Arc<dyn OwnLimits>>,
    steered: Option<Arc<dyn Steered>>,
    overview: Option<Arc<dyn Overview>>,
    all_nodes: Option<Arc<dyn AllNodes>>,
    requests: Option<Arc<dyn Requests>>,
    route_check: Option<Arc<dyn RouteCheck>>,
    /// Index of the state whose keys this node admits.
    admitted: Option<watch::Receiver<u64>>,
    orders: Orders,
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
            all_nodes: None,
            requests: None,
            route_check: None,
            admitted: None,
            orders: Orders::default(),
            shared,
        }
    }

    /// Writes orders to this node, and attempts that it refused, into the audit trail for ever. Run
    /// it once; without a cluster it ends at once.
    pub fn write_orders(&self) -> impl Future<Output = ()> + Send + use<> {
        let control_plane = self.control_plane.as_ref().map(Arc::downgrade);
        let orders = self.orders.clone();
        async move {
            if let Some(control_plane) = control_plane {
                orders.write(control_plane).await;
            }
        }
    }

    /// Waits until the orders so far are in the audit trail, for as long as `limit`. Call it before the
    /// node's part in the cluster ends. Returns the number of orders that are in the node's log alone.
    pub async fn finish_orders(&self, limit: Duration) -> usize {
        match self.control_plane {
            Some(_) => self.orders.written(limit).await,
            None => 0,
        }
    }

    /// Adds an order of `caller` to the audit trail for which the log has no command. `what` has
    /// the order in words. Never waits.
    pub fn record(&self, caller: &str, what: String, recorded: Recorded) {
        self.orders.done(caller, what, recorded);
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

    /// Adds the index of the state whose keys the node admits: a key is not shown before it can be
    /// used here.
    #[must_use]
    pub fn admitting(self, by: watch::Receiver<u64>) -> Self {
        Self { admitted: Some(by), ..self }
    }

    /// Adds the check of routes with settings of a config file. Without it, no route has any.
    #[must_use]
    pub fn checking(self, by: Arc<dyn RouteCheck>) -> Self {
        Self { route_check: Some(by), ..self }
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

    /// Adds the service that asks the other nodes. Without it, such questions are answered with an
    /// error.
    #[must_use]
    pub fn asking(self, by: Arc<dyn AllNodes>) -> Self {
        Self { all_nodes: Some(by), ..self }
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
    /// Returns the answer with the reason for the refusal.
    pub fn check(&self, head: &http::request::Parts, role: AdminRole) -> Result<(), Box<Reply>> {
        let state = self.control_plane.as_ref().map(|control_plane| control_plane.published());
        let caller = access::caller(head, &self.config(), state.as_deref());
        let checked = caller.and_then(|caller| access::check_role(&caller, role));
        checked.map_err(|error| Box::new(error.into_reply()))
    }

    /// Checks that the sender of an order with this head has the role, and returns its name. A
    /// refusal is recorded in the audit trail. For other services behind the same listener.
    ///
    /// # Errors
    /// Returns the answer with the reason for the refusal.
    pub fn authorize(
        &self,
        head: &http::request::Parts,
        role: AdminRole,
    ) -> Result<String, Box<Reply>> {
        let state = self.control_plane.as_ref().map(|control_plane| control_plane.published());
        let refuse = |caller: Option<&str>, error: ApiError| {
            let path = head.uri.path();
            // Text of unknown clients is not repeated.
            let path = if caller.is_some() { path } else { path.split('/').nth(1).unwrap_or("") };
            self.orders.refused(caller, format!("{} {path}", head.method), error.cause());
            Box::new(error.into_reply())
        };
        let caller = access::caller(head, &self.config(), state.as_deref())
            .map_err(|error| refuse(None, error))?;
        access::check_role(&caller, role).map_err(|error| refuse(Some(&caller.name), error))?;
        Ok(caller.name)
    }

    /// Checks that a request with this head names this listener. For services that need no token.
    ///
    /// # Errors
    /// Returns the answer with the reason for the refusal.
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
        let target = (head.method.clone(), head.uri.path().to_owned());
        // First, so that a caller without rights learns nothing, not even which paths exist.
        let caller = access::caller(&head, config, state.as_deref())
            .inspect_err(|error| self.refused(&target, None, error))?;
        let segments = call::segments(head.uri.path())?;
        let (endpoint, path) = match endpoint::find(&head.method, &segments) {
            EndpointMatch::AdminEndpoint(endpoint, path) => (endpoint, path),
            EndpointMatch::OtherMethods(methods) => return Ok(other_methods(&methods)),
            EndpointMatch::Nothing => return Err(no_path()),
        };
        // Before the body is read, so that only a caller with the role makes this node hold one.
        access::check_role(&caller, endpoint.role)
            .inspect_err(|error| self.refused(&target, Some(&caller.name), error))?;
        let credential = Credential::of(&head, self.shared.config.subscribe())?;
        if endpoint.operation == Operation::OpenApi {
            return Ok(json(StatusCode::OK, openapi()));
        }
        let call = AdminCall::read(endpoint, path, caller, (head, body), config).await?;
        let state = self.control_plane.as_ref().map(|control_plane| control_plane.published());
        // Checked again, since the body may have taken long to arrive.
        if !credential.holds(state.as_deref()) {
            let error = access::unauthorized("the token was revoked meanwhile");
            self.refused(&target, Some(&call.caller.name), &error);
            return Err(error);
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
            route_check: self.route_check.as_deref(),
            admitted: self.admitted.as_ref(),
            overview: self.overview.as_deref(),
            all_nodes: self.all_nodes.as_deref(),
        };
        let answered = answer::answer(&cluster, &call).await;
        match &answered {
            Ok(_) => {
                if let Some(text) = answer::text_of(&call) {
                    self.record(&call.caller.name, text, Recorded::EachTime);
                }
            }
            Err(error) => self.refused(&target, Some(&call.caller.name), error),
        }
        answered
    }

    /// Records an order that was refused because of its caller. Orders that the cluster refuses for
    /// other reasons are in its log.
    fn refused(
        &self,
        (method, path): &(http::Method, String),
        caller: Option<&str>,
        error: &ApiError,
    ) {
        let by_caller = matches!(error.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let found = call::segments(path).map(|segments| endpoint::find(method, &segments));
        let Ok(EndpointMatch::AdminEndpoint(endpoint, _)) = found else { return };
        if !by_caller || !endpoint.is_order() {
            return;
        }
        // Text of unknown clients is not repeated.
        let path = if caller.is_some() { path } else { &endpoint.path };
        self.orders.refused(caller, format!("{method} {path}"), error.cause());
    }

    /// Begins a stream of what happens on this node; needs no cluster.
    fn live(&self, call: &AdminCall, credential: Credential) -> Result<Reply, ApiError> {
        let unknown = || ApiError::internal("this process has no data about its node");
        let overview = self.overview.clone().ok_or_else(unknown)?;
        let source = LiveSource { overview, control_plane: self.control_plane.clone() };
        self.shared.live.stream(source, &call.caller, credential)
    }

    /// Answers from this node's own knowledge, which needs no cluster; `None` if the request is
    /// about the cluster's state.
    async fn answer_alone(&self, call: &AdminCall) -> Option<Result<Reply, ApiError>> {
        let (overview, all) = (self.overview.as_deref(), self.all_nodes.as_deref());
        match call.endpoint.operation {
            Operation::Explain => Some(answer::explain(self.explain.as_deref(), call).await),
            Operation::Steering => Some(answer::steering(self.steered.as_deref())),
            Operation::Node => Some(answer::node(overview, self.control_plane.as_deref()).await),
            Operation::World => Some(answer::world(overview)),
            Operation::History => Some(answer::history(overview, all, call).await),
            Operation::Fleet => Some(answer::fleet(all).await),
            Operation::Routes => Some(answer::routes(overview)),
            Operation::Usage => Some(answer::usage(overview, call).await),
            Operation::Requests => {
                Some(answer::requests(self.requests.as_deref(), all, call).await)
            }
            Operation::Reasons => Some(Ok(json(StatusCode::OK, &ReasonsAnswer::all()))),
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
