//! Other regions as the data path knows them: somewhere to send a request to.

use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use http::{Request, Response};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_types::{ModelName, ModelVersion, NodeName, RegionName, Residency, TenantName};

use crate::upstream::RetrySafety;
use crate::wire_body::{BoxError, LinkBody};

/// The way to the nodes of other regions.
pub trait Remote: Send + Sync + Debug {
    /// Sends a request to a node of another region and waits for its reply's head.
    ///
    /// Dropping the future, or later the reply's body, cancels the request there. Connects to nobody:
    /// without a connection it fails at once.
    fn forward(&self, to: &Destination, request: Forwarded) -> Forwarding;
}

/// A reply that is waited for.
pub type Forwarding = Pin<Box<dyn Future<Output = Result<RemoteReply, RemoteFailure>> + Send>>;

/// Where a request is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The region.
    pub region: RegionName,
    /// The one node of it that can serve the request; `None` leaves the choice.
    pub node: Option<NodeName>,
}

/// A request for another region. Path, headers and body are as this node would send them to a replica
/// of its own, but for the path, which is the client's.
#[derive(Debug)]
pub struct Forwarded {
    /// The request itself.
    pub request: Request<LinkBody>,
    /// What was found out about it.
    pub terms: GuestTerms,
    /// Whether the region is known to have room, so that a long body need not wait for its word.
    pub has_room: bool,
}

/// What one node tells another about a request, so that it need not be found out twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestTerms {
    /// The model to serve it with; `None` on routes without models.
    pub model: Option<ModelName>,
    /// The version of the model, if it has to be that one.
    pub version: Option<ModelVersion>,
    /// What is left of the client's time.
    pub time_left: Duration,
    /// How many nodes have forwarded it, the sender included.
    pub hop: u8,
    /// The client.
    pub client: IpAddr,
    /// Chained hashes of the prompt's blocks; keyed, so that they tell nothing to who lacks the key.
    pub prefix: Vec<u64>,
    /// Whose it is, by the credential that the first node looked at.
    pub tenant: Option<TenantName>,
    /// Its class, by the same: 0 is served first.
    pub priority: u8,
    /// Where it may be served.
    pub residency: Residency,
}

/// A reply of another region.
#[derive(Debug)]
pub struct RemoteReply {
    /// The node that took the request.
    pub node: NodeName,
    /// Its reply.
    pub response: Response<LinkBody>,
}

/// A request that another region did not reply to.
#[derive(Debug, thiserror::Error)]
pub enum RemoteFailure {
    /// No node of the region has a connection to this one.
    #[error("no connection to the region")]
    NotConnected,
    /// It does not take the request.
    #[error("the region does not take it")]
    Refused {
        /// After how long it might.
        wait: Option<Duration>,
        /// Why not.
        why: RefusedFor,
    },
    /// The node that was asked is about to end; another one of its region may take the request.
    #[error("the node is about to end")]
    Leaving,
    /// The link broke before the request was taken.
    #[error("the link broke before the request was taken: {0}")]
    Unsent(BoxError),
    /// The link broke, or nothing came in time, after the request may have been taken.
    #[error("the link broke: {0}")]
    Broken(BoxError),
    /// Its time was over.
    #[error("deadline passed")]
    DeadlinePassed,
}

/// Why a region does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedFor {
    /// It has no room, or none for guests. It is well.
    Load,
    /// It may not serve it, by rules that this node does not know.
    Residency,
    /// It could not serve it.
    Other,
}

impl RefusedFor {
    /// Whether the region is as well as ever.
    pub(crate) fn is_well(self) -> bool {
        self != Self::Other
    }
}

impl RemoteFailure {
    /// What the client is told. Causes stay in the log.
    pub(crate) fn to_gateway_error(&self, region: &RegionName) -> GatewayError {
        let (kind, message) = match self {
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

    /// Whether asking somebody else can do no harm.
    pub(crate) fn retry_safety(&self) -> RetrySafety {
        match self {
            Self::NotConnected | Self::Refused { .. } | Self::Leaving | Self::Unsent(_) => {
                RetrySafety::Unsent
            }
            Self::Broken(_) | Self::DeadlinePassed => RetrySafety::Never,
        }
    }
}
