//! Requests about responses that a replica stores: only this replica can answer, and only to the
//! tenant that owns them.

use std::sync::Arc;

use spillway_protocol::{Echo, ErrorKind, GatewayError, Segments};
use spillway_types::ReplicaSlot;

use crate::cost::Cost;
use crate::flavour::Flavour;
use crate::path::replica_path;
use crate::prepared::Prepared;
use crate::surroundings::{Contents, Surroundings, no_such_path};
use crate::target::Target;
use spillway_upstream::connection::RequestBody;
use spillway_upstream::remote::Destination;
use spillway_upstream::stored_responses::Home;
use spillway_upstream::wake;
use spillway_upstream::wire_body::WireBody;

/// Location of a stored response.
#[derive(Debug)]
pub enum Stored {
    /// A replica of this region.
    Here(ReplicaSlot),
    /// A node of another region.
    There(Destination),
}

impl Stored {
    /// Returns the two cases apart.
    pub fn split(self) -> (Option<ReplicaSlot>, Option<Destination>) {
        match self {
            Self::Here(slot) => (Some(slot), None),
            Self::There(destination) => (None, Some(destination)),
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
        let stored = self.storing(id)?.ok_or_else(|| no_such_response(id))?;
        let (pinned, home) = stored.split();
        let model = pinned.and_then(|slot| self.view.replica(slot).spec().models.first().cloned());
        let route =
            self.view.route_of_model(model.as_ref()).ok_or_else(|| no_such_path(self.head))?;
        let buffered = self.buffer(body).await?;
        Ok(Prepared {
            inquiry: self.inquiry(route, model, Contents::default())?,
            is_one_client: self.is_one_client,
            path: replica_path(self.head, route, None)?,
            body: RequestBody::Buffered(Segments::from(buffered.bytes)),
            draft: None,
            // To read, cancel or delete a response generates nothing.
            cost: Cost::of_stored(),
            target: Target { home, ..Target::default() },
            pinned,
            flavour: Flavour::Responses,
            usage: None,
            deaths: self.deaths(),
            stored_for: None,
            continuing: None,
            reply_hasher: None,
            body_wait: buffered.wait,
            _reservation: buffered.reservation,
            route: Arc::clone(route),
        })
    }

    /// Returns the location of a stored response; `None` if it is unknown here and can belong to no
    /// other tenant.
    ///
    /// # Errors
    /// Returns an error if the response belongs or may belong to another tenant, without a word
    /// about its existence, or if the key may not use its model.
    pub fn storing(self, id: &str) -> Result<Option<Stored>, GatewayError> {
        let Some(stored) = self.gateway.responses.find(id, wake::now()) else {
            // Another node may have stored it, or this node before a restart, for any tenant.
            return if self.is_shared() { Ok(None) } else { Err(no_such_response(id)) };
        };
        if stored.tenant != self.grant.tenant {
            return Err(no_such_response(id));
        }
        self.grant.check_name(self.view.names(), Some(stored.model.as_str()))?;
        Ok(match stored.home {
            Home::Replica(replica) => self.view.slot(&replica).map(Stored::Here),
            // The node that forwarded the request took this node for the response's home.
            Home::Node(..) if self.guest.is_some() => None,
            Home::Node(region, node) => {
                Some(Stored::There(Destination { region, node: Some(node) }))
            }
        })
    }

    /// Returns true if all clients share all stored responses, or another node has already checked
    /// that the request may have this one.
    fn is_shared(self) -> bool {
        let is_anybody = self.grant.tenant.is_none() && self.gateway.keys().is_empty();
        is_anybody || self.guest.is_some()
    }
}

fn no_such_response(id: &str) -> GatewayError {
    let message = format!("no response with id {:?} is known here", Echo(id));
    GatewayError::new(ErrorKind::ResponseNotFound, message)
}
