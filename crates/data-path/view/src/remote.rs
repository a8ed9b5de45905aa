//! Other regions as destinations of requests.

use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use http::{Request, Response};
use spillway_journey::RetrySafety;
use spillway_protocol::{ErrorKind, GatewayError, RETRY_DELAY};
use spillway_transport::{BoxError, LinkBody};
use spillway_types::{
    ModelName, ModelVersion, NodeName, RegionName, Residency, TenantName, continued,
};

use crate::stored_responses::StoredResponse;
use crate::usage_reports::WantedUsage;

/// Transport of requests to nodes of other regions.
pub trait Remote: Send + Sync + Debug {
    /// Sends a request to a node of another region and waits for its reply's head.
    ///
    /// Dropping the future, or later the reply's body, cancels the request there. Opens no
    /// connection: without one the call fails at once.
    fn forward(&self, to: &Destination, request: Forwarded) -> Forwarding;

    /// Asks the other nodes once for the replica that stores a response of this tenant. The result
    /// is `None` if none of them knows it, none answers in time, or the tenant has asked too often.
    fn find_response(&self, id: &str, tenant: Option<&TenantName>) -> FindingResponse;

    /// Returns true while the node can be expected to answer: a control connection leads there.
    fn is_alive(&self, node: &NodeName) -> bool;
}

/// Future of a reply from another region.
pub type Forwarding = Pin<Box<dyn Future<Output = Result<RemoteReply, RemoteError>> + Send>>;

/// Future of a stored response that other nodes may know.
pub type FindingResponse = Pin<Box<dyn Future<Output = Option<StoredResponse>> + Send>>;

/// Destination of a forwarded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Name of the region.
    pub region: RegionName,
    /// Node of the region that can serve the request for certain. Without it, or while it is not
    /// connected, the transport chooses.
    pub node: Option<NodeName>,
}

/// A request for another region. Headers are as for a replica of this region. The path is the
/// client's, and so is the body, except for the model's name.
#[derive(Debug)]
pub struct Forwarded {
    /// The request itself.
    pub request: Request<LinkBody>,
    /// Terms that this node found for the request.
    pub terms: GuestTerms,
    /// True if the region is known to have room, so that a long body need not wait for its consent.
    pub has_room: bool,
}

/// Terms that a node sends along with a forwarded request, so that the next node need not find them
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTerms {
    /// Model to serve; `None` on routes without models.
    pub model: Option<ModelName>,
    /// Required version of the model; `None` for any.
    pub version: Option<ModelVersion>,
    /// Time left until the client's deadline.
    pub time_left: Duration,
    /// Number of nodes that have forwarded the request, the sender included.
    pub hop: u8,
    /// Address of the client.
    pub client: IpAddr,
    /// Chained hashes of the prompt's blocks; keyed, so that they reveal nothing without the key.
    pub prefix: Vec<u64>,
    /// Tenant of the request, by the credential that the first node checked.
    pub tenant: Option<TenantName>,
    /// Priority class, by the same credential: 0 is served first.
    pub priority: u8,
    /// Residency rules of the request.
    pub residency: Residency,
    /// Usage that the sender wants of the stream. The receiver asks its replica, and passes the
    /// reports on: the sender removes those that the client did not ask for.
    pub usage: Option<WantedUsage>,
    /// Number of engines that died while they served the request.
    pub deaths: u8,
    /// Name by which the client asked for the model, if its reply is to be stored and the name is an
    /// alias: a key may allow the alias alone.
    pub named: Option<ModelName>,
}

/// A reply of another region.
#[derive(Debug)]
pub struct RemoteReply {
    /// Node that took the request.
    pub node: NodeName,
    /// Reply of that node.
    pub response: Response<LinkBody>,
}

/// Failure of a request that another region did not reply to.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No node of the region has a connection to this node.
    #[error("no connection to the region")]
    NotConnected,
    /// The region refused the request.
    #[error("the region refused the request: {}", continued(text))]
    Refused {
        /// Reason in the words of the node that was asked, for operators.
        text: &'static str,
        /// Time after which the region may have room; `None` if it did not say.
        wait: Option<Duration>,
        /// Reason of the refusal.
        why: RefusedFor,
    },
    /// The node that was asked is shutting down; another node of its region may take the request.
    #[error("the node is about to end")]
    Leaving,
    /// The link broke before the request was taken.
    #[error("the link broke before the request was taken: {0}")]
    Unsent(BoxError),
    /// The link broke, or nothing came in time, after the request may have been taken.
    #[error("the link broke: {0}")]
    Broken(BoxError),
    /// The region fell silent while its reply was waited for.
    #[error("the region can't be reached any more")]
    Lost,
    /// The request's deadline passed.
    #[error("deadline passed")]
    DeadlinePassed,
}

/// Reasons why a region refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedFor {
    /// The region has no room, or none for guests. The region itself is healthy.
    Load,
    /// Residency rules that this node does not know forbid it.
    Residency,
    /// The region could not serve the request.
    Other,
}

impl RefusedFor {
    /// Returns true if the refusal is no sign of a fault in the region.
    pub fn is_well(self) -> bool {
        self != Self::Other
    }
}

impl RemoteError {
    /// Returns the error for the client. Causes stay in the log.
    pub fn to_gateway_error(&self, region: &RegionName) -> GatewayError {
        let (kind, message) = match self {
            Self::Lost => {
                let message = format!("the region {region} can't be reached any more");
                return GatewayError::new(ErrorKind::ReplicaReset, message)
                    .with_retry_after(RETRY_DELAY);
            }
            Self::NotConnected | Self::Refused { .. } | Self::Leaving | Self::Unsent(_) => {
                (ErrorKind::ReplicaConnect, format!("the region {region} can't be reached"))
            }
            Self::Broken(_) => (
                ErrorKind::ReplicaReset,
                format!("the region {region} broke off before it replied"),
            ),
            Self::DeadlinePassed => {
                (ErrorKind::DeadlineExceeded, "the request's deadline passed".to_owned())
            }
        };
        GatewayError::new(kind, message)
    }

    /// Returns the safety of a retry at another server.
    pub fn retry_safety(&self) -> RetrySafety {
        match self {
            Self::NotConnected | Self::Refused { .. } | Self::Leaving | Self::Unsent(_) => {
                RetrySafety::Unsent
            }
            Self::Lost => RetrySafety::Reset,
            Self::Broken(_) | Self::DeadlinePassed => RetrySafety::Never,
        }
    }
}
