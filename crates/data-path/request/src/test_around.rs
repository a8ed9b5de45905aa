//! A node that reads requests, as tests of this crate set it up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use spillway_front::access::Grant;
use spillway_prefix::{PrefixConfig, PrefixHasher};
use spillway_protocol::{EngineFields, ErrorKind, GatewayError, Protocol};
use spillway_resolver::Resolver;
use spillway_route::{Policy, Tuning};
use spillway_transport::{Limits, WireBody};
use spillway_types::{Allowed, ModelName, ReplicaName, Residency};
use spillway_upstream::{ReplicaProtocol, RequestBody, Timeouts};
use spillway_view::{
    GuestTerms, InjectUsage, KnownModels, NameSpec, QueueSpec, Replica, ReplicaSpec, Retry,
    RouteSpec, UsageReports, View, ViewParts, WaitTotals,
};

use crate::gateway::{Gateway, GatewayConfig};
use crate::grpc::called;
use crate::prepare::prepare;
use crate::prepared::Prepared;
use crate::surroundings::Surroundings;

/// A node with its view and the credential of its client.
#[derive(Debug)]
pub(crate) struct Around {
    pub(crate) gateway: Gateway,
    pub(crate) grant: Grant,
    pub(crate) guest: Option<GuestTerms>,
}

/// Parts of a view that tests vary.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) routes: Vec<RouteSpec>,
    pub(crate) replicas: Vec<ReplicaSpec>,
    pub(crate) names: NameSpec,
    pub(crate) elsewhere: BTreeSet<ModelName>,
    pub(crate) unread: BTreeSet<ReplicaName>,
}

impl Served {
    /// Returns one route for all models, and a replica of each of these.
    pub(crate) fn models(models: &[&str]) -> Self {
        let replica = |model: &&str| replica(&format!("replica-of-{model}"), &[model]);
        Self {
            routes: vec![route("all")],
            replicas: models.iter().map(replica).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn with_alias(mut self, alias: &str, model: &str) -> Self {
        self.names.aliases.insert(alias.into(), model.into());
        self
    }

    pub(crate) fn with_fallback(mut self, model: &str, others: &[&str]) -> Self {
        let others = others.iter().map(|other| ModelName::from(*other)).collect();
        self.names.fallbacks.insert(model.into(), others);
        self
    }

    pub(crate) fn with_route(mut self, route: RouteSpec) -> Self {
        self.routes.push(route);
        self
    }

    pub(crate) fn view(self) -> View {
        let replica = |spec| Arc::new(Replica::new(spec, 1, &Resolver::default()).unwrap());
        View::new(ViewParts {
            routes: self.routes,
            replicas: self.replicas.into_iter().map(replica).collect(),
            names: Arc::new(self.names),
            elsewhere: self.elsewhere,
            known: KnownModels::default(),
            cards: Arc::default(),
            unread: self.unread,
            denied: &BTreeMap::new(),
            several: &BTreeSet::new(),
            standings: &BTreeMap::new(),
            weights: &BTreeMap::new(),
            previous: None,
            first_turn: 0,
        })
    }
}

impl Around {
    pub(crate) fn new(served: Served) -> Self {
        Self::with_limits(served, Limits::default())
    }

    pub(crate) fn with_limits(served: Served, limits: Limits) -> Self {
        let config = GatewayConfig {
            region: "eu".to_owned(),
            country: None,
            limits,
            retry: Retry::default(),
            seed: 1,
            expose_routing: false,
            waiting: WaitTotals::default(),
        };
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let gateway = Gateway::new(config, hasher, served.view(), 1_700_000_000);
        let grant = gateway.clients.authenticator.vouched(None, 1);
        Self { gateway, grant, guest: None }
    }

    /// Lets the client's key ask for these models alone.
    pub(crate) fn allow(mut self, models: &[&str]) -> Self {
        let models = models.iter().map(|model| ModelName::from(*model)).collect();
        self.grant.models = Allowed::Only(Arc::new(models));
        self
    }

    /// Calls `then` with the context of a request with this head.
    pub(crate) fn surround<T>(&self, head: &Parts, then: impl FnOnce(Surroundings<'_>) -> T) -> T {
        let view = self.gateway.routing.view();
        then(self.surroundings(&view, head))
    }

    fn surroundings<'a>(&'a self, view: &'a View, head: &'a Parts) -> Surroundings<'a> {
        Surroundings {
            gateway: &self.gateway,
            view,
            head,
            client: "192.0.2.9".parse().unwrap(),
            is_one_client: true,
            started: Instant::now(),
            guest: self.guest.as_ref(),
            grant: &self.grant,
        }
    }

    /// Prepares a request.
    pub(crate) async fn prepare(&self, asked: Asked) -> Result<Prepared, GatewayError> {
        let (head, mut body) = asked.0.into_parts();
        let endpoint = called(&head);
        let endpoint =
            endpoint.unwrap_or_else(|| spillway_protocol::Endpoint::classify(head.uri.path()));
        let view = self.gateway.routing.view();
        prepare(self.surroundings(&view, &head), &mut body, endpoint).await
    }

    /// Returns the kind of the error with which a request is refused.
    #[track_caller]
    pub(crate) fn refused(&self, asked: Asked) -> ErrorKind {
        match run(self.prepare(asked)) {
            Err(error) => error.kind,
            Ok(prepared) => panic!("not refused, but for {:?}", prepared.inquiry.model),
        }
    }

    #[track_caller]
    pub(crate) fn prepared(&self, asked: Asked) -> Prepared {
        run(self.prepare(asked)).unwrap_or_else(|error| panic!("refused: {error:?}"))
    }
}

/// Runs a future to its end, with time that passes only while nothing else can happen.
#[track_caller]
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// A request as a test writes it.
#[derive(Debug)]
pub(crate) struct Asked(http::Request<WireBody>);

impl Asked {
    pub(crate) fn new(method: &str, path: &str, body: impl Into<Bytes>) -> Self {
        let body = Pieces::of([body.into()]).wire();
        Self(http::Request::builder().method(method).uri(path).body(body).unwrap())
    }

    pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self::new("POST", path, body)
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, "")
    }

    /// Returns a gRPC call.
    pub(crate) fn call(path: &str, body: impl Into<Bytes>) -> Self {
        let mut asked = Self::post(path, body).with("content-type", "application/grpc");
        *asked.0.version_mut() = http::Version::HTTP_2;
        asked
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.0.headers_mut().append(name, value.parse().unwrap());
        self
    }

    pub(crate) fn in_pieces(mut self, pieces: Pieces) -> Self {
        *self.0.body_mut() = pieces.wire();
        self
    }

    pub(crate) fn head(self) -> Parts {
        self.0.into_parts().0
    }
}

/// A body that arrives in pieces, each after a pause.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    /// Announced length; `None` announces none.
    announced: Option<u64>,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    pause_s: u64,
}

impl Pieces {
    pub(crate) fn of(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: VecDeque<Bytes> =
            pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces, announced: Some(bytes), pause: None, pause_s: 0 }
    }

    pub(crate) fn unannounced(self) -> Self {
        Self { announced: None, ..self }
    }

    pub(crate) fn announcing(self, bytes: u64) -> Self {
        Self { announced: Some(bytes), ..self }
    }

    pub(crate) fn each_after_s(self, pause_s: u64) -> Self {
        Self { pause_s, ..self }
    }

    pub(crate) fn wire(self) -> WireBody {
        let body = self.map_err(|never| match never {});
        WireBody::Link(body.boxed_unsync())
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pause_s > 0 && !self.pieces.is_empty() {
            let pause_s = self.pause_s;
            let pause = self.pause.get_or_insert_with(|| {
                // wait: paused time.
                Box::pin(tokio::time::sleep(Duration::from_secs(pause_s)))
            });
            std::task::ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.announced.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Returns the bytes of a body that is in memory.
#[track_caller]
pub(crate) fn sent(prepared: &Prepared) -> String {
    let RequestBody::Buffered(body) = &prepared.body else { panic!("the body is streamed") };
    let bytes: Vec<u8> = body.iter().flat_map(|piece| piece.iter().copied()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn model(prepared: &Prepared) -> Option<&str> {
    prepared.inquiry.model.as_ref().map(ModelName::as_str)
}

pub(crate) fn route(name: &str) -> RouteSpec {
    RouteSpec {
        name: name.into(),
        path_prefix: None,
        replace_prefix: None,
        protocol: Protocol::OpenAi,
        models: Vec::new(),
        default_model: None,
        pool: None,
        policy: Policy::PredictedLatency,
        tuning: Tuning::default(),
        hash_by: None,
        session: None,
        inject_usage: InjectUsage::Auto,
        forward_authorization: false,
        engine_fields: EngineFields::NONE,
        continuation: None,
        queue: QueueSpec::default(),
        hedge: None,
        timeouts: Timeouts::default(),
        residency: Residency::default(),
        overflow: false,
    }
}

/// Returns a route below a path prefix.
pub(crate) fn prefixed(prefix: &str, protocol: Protocol) -> RouteSpec {
    RouteSpec { path_prefix: Some(prefix.to_owned()), protocol, ..route(prefix) }
}

pub(crate) fn replica(name: &str, models: &[&str]) -> ReplicaSpec {
    ReplicaSpec {
        name: name.into(),
        host: "127.0.0.1".to_owned(),
        port: 1,
        base: None,
        tls: None,
        protocol: ReplicaProtocol::Http1,
        grpc: None,
        models: models.iter().map(|model| ModelName::from(*model)).collect(),
        versions: BTreeMap::new(),
        pool: "default".to_owned(),
        weight: 1,
        in_flight_max: 256,
        idle: Duration::from_secs(1),
        continues_chats: false,
        salt_field: None,
        usage_reports: UsageReports::None,
        kv_events_port: None,
        credential: None,
        overflow: None,
    }
}

pub(crate) fn guest(model: Option<&str>) -> GuestTerms {
    GuestTerms {
        model: model.map(ModelName::from),
        version: None,
        time_left: Duration::from_secs(5),
        hop: 1,
        client: "192.0.2.9".parse().unwrap(),
        prefix: Vec::new(),
        tenant: None,
        priority: 1,
        residency: Residency::default(),
        usage: None,
        deaths: 0,
        named: None,
    }
}
