//! Admits requests: checks credentials, memory, residency and quotas before a replica is asked.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::HeaderMap;
use http::request::Parts;
use spillway_front::access::{AccessMode, Grant};
use spillway_protocol::grpc::GrpcMethod;
use spillway_protocol::{Endpoint, ErrorKind, GatewayError};
use spillway_request::head::{check_guest_head, check_head};
use spillway_request::prepared::Prepared;
use spillway_request::surroundings::Surroundings;
use spillway_route::ShedReason;
use spillway_types::Inquiry;

use crate::request::charge::{Charge, check_budget};
use crate::request::errors::shed_error;
use crate::request::exchange::Exchange;
use crate::request::record::RequestRecord;

impl Exchange {
    /// Authenticates the request like [`Self::admit`]. A key that is unknown here is waited for a
    /// moment. Notes the clients that ask if the node is ready.
    pub(super) async fn admitted(
        &self,
        head: &Parts,
        endpoint: Endpoint<'_>,
        is_routed: bool,
    ) -> Result<Arc<Grant>, GatewayError> {
        if !is_routed && asks_readiness(endpoint) {
            let polls = &self.worker.gateway.clients.readiness_polls;
            polls.note(self.client.address, Instant::now());
        }
        match self.admit(head, endpoint, is_routed) {
            Ok(grant) => Ok(grant),
            // Boxed, since few requests need its room.
            Err(error) => Box::pin(self.admit_soon(head, error)).await,
        }
    }

    /// Authenticates the request. Called before anything else of it is read, except that the head
    /// is checked and health checks are recognized.
    fn admit(
        &self,
        head: &Parts,
        endpoint: Endpoint<'_>,
        is_routed: bool,
    ) -> Result<Arc<Grant>, GatewayError> {
        let (gateway, headers) = (&self.worker.gateway, &head.headers);
        let authenticator = &gateway.clients.authenticator;
        if let Some(guest) = &self.guest {
            check_guest_head(head, gateway.door.limits().header_bytes_max)?;
            let grant =
                authenticator.vouched_by(guest.tenant.as_ref(), guest.priority, &guest.residency);
            return Ok(Arc::new(grant));
        }
        check_head(head, gateway.door.limits().header_bytes_max)?;
        match self.client.access.mode() {
            AccessMode::None => Ok(authenticator.anybody()),
            // Health checks need no key.
            _ if !is_routed && endpoint.is_health() => Ok(authenticator.anybody()),
            AccessMode::Keys => authenticator.admit(headers),
            AccessMode::Headers => authenticator.believe(headers, self.client.is_trusted()),
        }
    }

    /// Returns the grant of a key that this node does not know yet, once it does: another node may
    /// have made it a moment ago.
    async fn admit_soon(
        &self,
        head: &Parts,
        error: GatewayError,
    ) -> Result<Arc<Grant>, GatewayError> {
        let is_key = self.guest.is_none() && self.client.access.mode() == AccessMode::Keys;
        if !is_key || error.kind != ErrorKind::KeyInvalid {
            return Err(error);
        }
        let (headers, client) = (&head.headers, self.client_address(&head.headers));
        let admitted = self.worker.gateway.clients.authenticator.admit_soon(headers, client).await;
        admitted.unwrap_or(Err(error))
    }

    /// Checks that a replica may work for the request: no web page of another origin sent it to a
    /// listener without keys, and the node has memory left.
    pub(super) fn check_room(&self, head: &Parts) -> Result<(), GatewayError> {
        let gateway = &self.worker.gateway;
        // A key is what no page can send without asking first.
        if self.is_of_browser && self.client.access.mode() == AccessMode::None {
            gateway.clients.cors().check_page(head)?;
        }
        if gateway.door.memory().admits_request() {
            Ok(())
        } else {
            Err(shed_error(ShedReason::Memory))
        }
    }

    /// Returns the client's address, as the most trusted source gives it.
    pub(super) fn client_address(&self, headers: &HeaderMap) -> IpAddr {
        match &self.guest {
            Some(guest) => guest.client,
            None => self.client.trusted_proxies.client(self.client.address, headers),
        }
    }

    /// Adds the rules for the client's country to the grant, and counts the request by country. A
    /// guest was located by the first node, and brings its rules along.
    pub(super) fn located(&self, grant: Arc<Grant>, headers: &HeaderMap) -> Arc<Grant> {
        let gateway = &self.worker.gateway;
        let locate = || gateway.routing.locations().bound(self.client_address(headers));
        let Some(client) = self.guest.is_none().then(locate).flatten() else { return grant };
        gateway.counters.countries.count(client.country);
        match client.residency.is_anywhere() {
            true => grant,
            false => Arc::new(grant.of_client(Some(client))),
        }
    }

    /// Returns true if the address belongs to a single client: false for a trusted proxy that does
    /// not name its client, and for a guest, which was counted at its own node.
    pub(super) fn is_one_client(&self, headers: &HeaderMap) -> bool {
        let is_proxy =
            || self.client.is_trusted() && self.client_address(headers) == self.client.address;
        self.guest.is_none() && !self.client.is_unnamed && !is_proxy()
    }

    /// Returns the request if residency rules allow a region that could serve it.
    pub(super) fn allowed(
        &self,
        around: Surroundings<'_>,
        prepared: Prepared,
        record: &mut RequestRecord,
    ) -> Result<Prepared, GatewayError> {
        if let Err(error) = around.check_regions(&prepared) {
            self.note_rules(&prepared, record);
            return Err(error);
        }
        Ok(prepared)
    }

    /// Notes the residency rules that no region fits, and what they leave out. A guest's other regions are
    /// those of its own node.
    #[cold]
    fn note_rules(&self, prepared: &Prepared, record: &mut RequestRecord) {
        record.prepared(prepared);
        record.routed(&prepared.route.spec.name, prepared.inquiry.model.as_ref());
        if self.guest.is_none() {
            let Inquiry { model, residency, .. } = &prepared.inquiry;
            let regions = self.worker.gateway.routing.regions();
            record.left_out(regions.left_out(model.as_ref(), residency));
        }
    }

    /// Notes the tokens of a request, and charges a client's own request to its quotas, unless its
    /// budget is spent; a guest was charged at its own node.
    pub(super) fn charge(
        &self,
        grant: &Grant,
        prepared: &Prepared,
        record: &mut RequestRecord,
    ) -> Result<(), GatewayError> {
        record.prepared(prepared);
        if self.guest.is_none() {
            record.routed(&prepared.route.spec.name, prepared.inquiry.model.as_ref());
            check_budget(&self.worker.gateway.clients.budgets, prepared.inquiry.tenant.as_ref())?;
            record.charged(Charge::take(
                &self.worker.gateway.clients.quotas,
                &prepared.route.spec.name,
                grant,
                &prepared.inquiry,
                &prepared.cost,
            )?);
        }
        Ok(())
    }
}

/// Returns true for an endpoint by which load balancers and other checkers learn if the node is ready.
fn asks_readiness(endpoint: Endpoint<'_>) -> bool {
    matches!(
        endpoint,
        Endpoint::Readyz
            | Endpoint::V2Ready
            | Endpoint::Steering
            | Endpoint::Grpc(GrpcMethod::ServerReady | GrpcMethod::HealthCheck)
    )
}
