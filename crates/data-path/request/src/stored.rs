//! Requests about responses that a replica stores: only this replica can answer, and only to the
//! tenant that owns them.

use std::sync::Arc;
use std::time::Duration;

use spillway_protocol::{Echo, ErrorKind, GatewayError, Segments};
use spillway_transport::{WireBody, coarse_clock};
use spillway_types::{ModelName, RegionName, ReplicaSlot};
use spillway_upstream::RequestBody;
use spillway_view::{Destination, Home, Route, StoredResponse};

use crate::cost::Cost;
use crate::flavour::Flavour;
use crate::path::replica_path;
use crate::prepared::{Prepared, ReadBody, Routed};
use crate::surroundings::{Contents, Surroundings, no_such_path};
use crate::target::Target;

/// Time after which a client should retry while this node still receives what the other nodes know.
const LEARNING_RETRY: Duration = Duration::from_secs(1);

/// Location of a stored response.
#[derive(Debug)]
pub enum Stored {
    /// A replica of this region.
    Here(ReplicaSlot),
    /// A node of another region, or the node of this one whose config alone has the replica.
    There {
        /// The region and the node.
        destination: Destination,
        /// Model as the client named it.
        model: ModelName,
    },
}

impl Stored {
    /// Returns the two cases apart.
    pub fn split(self) -> (Option<ReplicaSlot>, Option<Destination>) {
        match self {
            Self::Here(slot) => (Some(slot), None),
            Self::There { destination, .. } => (None, Some(destination)),
        }
    }
}

impl Surroundings<'_> {
    /// Prepares a request about a stored response, which only the replica that stored it can
    /// answer.
    pub async fn stored_response(
        self,
        body: &mut WireBody,
        id: &str,
    ) -> Result<Prepared, GatewayError> {
        let stored = self.storing(id).await?.ok_or_else(|| no_such_response(id))?;
        let route = self.route_of(&stored).ok_or_else(|| no_such_path(self.head))?;
        let (pinned, home) = stored.split();
        let model = pinned.and_then(|slot| self.view.replica(slot).spec().models.first().cloned());
        let buffered = self.buffer(body).await?;
        let read = ReadBody {
            body: RequestBody::Buffered(Segments::from(buffered.bytes)),
            // To read, cancel or delete a response generates nothing.
            cost: Cost::of_stored(),
            wait: buffered.wait,
            reservation: buffered.reservation,
        };
        let routed = Routed {
            path: replica_path(self.head, route, None)?,
            route: Arc::clone(route),
            model,
            target: Target { home, ..Target::default() },
        };
        let prepared = self.prepared(routed, Contents::default(), Flavour::Responses, read)?;
        Ok(Prepared { pinned, ..prepared })
    }

    /// Returns the route for requests about a stored response.
    fn route_of(&self, stored: &Stored) -> Option<&Arc<Route>> {
        let view = self.view;
        match stored {
            Stored::Here(slot) => view.route_of_model(view.replica(*slot).spec().models.first()),
            Stored::There { model, .. } => {
                let behind = view.names().behind(model.as_str()).unwrap_or(model);
                view.route_of_model(None).or_else(|| view.route_of_model(Some(behind)))
            }
        }
    }

    /// Returns the location of a stored response; `None` if it is unknown to all nodes and can belong
    /// to no other tenant.
    ///
    /// # Errors
    /// Returns an error if the response belongs or may belong to another tenant, without a word
    /// about its existence, or if the model is not for the key.
    pub async fn storing(self, id: &str) -> Result<Option<Stored>, GatewayError> {
        let known = self.gateway.homes.responses.find(id, coarse_clock::now());
        let is_known = known.is_some();
        let found = match known.filter(|stored| self.can_locate(stored)) {
            Some(stored) => Some(stored),
            // Boxed, since few requests need its room. A response of another tenant is looked for
            // like an unknown one: no client can distinguish them by the time.
            None => Box::pin(self.ask_for_response(id)).await,
        };
        let Some(stored) = found else {
            if self.gateway.homes.responses.is_learning() && self.guest.is_none() {
                return Err(still_learning(id));
            }
            // It may belong to any tenant.
            return if !is_known && self.is_shared() {
                Ok(None)
            } else {
                Err(no_such_response(id))
            };
        };
        if !self.grant.may_ask_for(stored.model.as_str(), |name| self.view.names().behind(name)) {
            return Err(no_such_response(id));
        }
        if let Some(slot) = self.slot_of(&stored.home) {
            return Ok(Some(Stored::Here(slot)));
        }
        Ok(match stored.home {
            // The node that forwarded the request took this node for the response's home.
            Home::Elsewhere { region, node, .. } if self.guest.is_none() => {
                let destination = Destination { region, node };
                Some(Stored::There { destination, model: stored.model })
            }
            Home::Replica(_) | Home::Elsewhere { .. } => None,
        })
    }

    /// Returns true if the tenant may have a response, and this node knows enough to lead there.
    fn can_locate(self, stored: &StoredResponse) -> bool {
        let is_found = match &stored.home {
            Home::Replica(_) => true,
            Home::Elsewhere { region, node, .. } => {
                let is_led = !self.is_own(region) || node.is_some();
                self.slot_of(&stored.home).is_some() || self.guest.is_none() && is_led
            }
        };
        is_found && stored.tenant == self.grant.tenant
    }

    /// Returns the replica of this region that stores a response, if this node knows the replica.
    fn slot_of(self, home: &Home) -> Option<ReplicaSlot> {
        match home {
            Home::Replica(replica) => self.view.slot(replica),
            Home::Elsewhere { region, replica: Some(replica), .. } if self.is_own(region) => {
                self.view.slot(replica)
            }
            Home::Elsewhere { .. } => None,
        }
    }

    fn is_own(self, region: &RegionName) -> bool {
        region.as_str() == self.gateway.routing.own_region
    }

    /// Asks the other nodes once for a response, and keeps what they know.
    async fn ask_for_response(self, id: &str) -> Option<StoredResponse> {
        let remote = self.gateway.routing.remote()?;
        let tenant = self.grant.tenant.as_ref();
        let told = remote.find_response(id, tenant).await?;
        // An id that another tenant has here stays with it.
        self.gateway.homes.responses.receive(id, told, coarse_clock::now()).ok()?;
        self.gateway
            .homes
            .responses
            .find(id, coarse_clock::now())
            .filter(|stored| stored.tenant.as_ref() == tenant)
    }

    /// Returns true if all clients share all stored responses, or another node has already checked
    /// that the request may have this one.
    fn is_shared(self) -> bool {
        let is_anybody =
            self.grant.tenant.is_none() && self.gateway.clients.authenticator.table().is_empty();
        is_anybody || self.guest.is_some()
    }
}

/// A 404 would make the client start over.
fn still_learning(id: &str) -> GatewayError {
    let message = format!(
        "this node has just started, and still hears from others where the response with id {:?} may be",
        Echo(id)
    );
    GatewayError::new(ErrorKind::NoReplica, message).with_retry_after(LEARNING_RETRY)
}

fn no_such_response(id: &str) -> GatewayError {
    let message = format!("no response with id {:?} is known here", Echo(id));
    GatewayError::new(ErrorKind::ResponseNotFound, message)
}

#[cfg(test)]
#[path = "stored_test.rs"]
mod tests;
