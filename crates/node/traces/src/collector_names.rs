//! Look-ups of the collector's name.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use hyper_util::client::legacy::connect::dns::Name;
use spillway_resolver::{LookupError, Resolver};
use tower_service::Service;

/// Looks the collector's name up as the node does: a look-up of the system would take a thread, and the
/// node could not end before it does.
#[derive(Clone, Debug)]
pub(crate) struct CollectorNames(pub(crate) Resolver);

impl Service<Name> for CollectorNames {
    type Response = IntoIter<SocketAddr>;
    type Error = LookupError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, LookupError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LookupError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The caller sets the port.
        let endpoint = self.0.endpoint(name.as_str(), 0);
        Box::pin(async move {
            endpoint.host().ready().await;
            let addresses = endpoint.addresses();
            match endpoint.host().error() {
                Some(error) if addresses.is_empty() => Err(error),
                _ => Ok(addresses.into_iter()),
            }
        })
    }
}
