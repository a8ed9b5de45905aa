//! Other models for a request whose own model can't serve it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use spillway_front::access::Grant;
use spillway_journey::{ServedModel, StandIns};
use spillway_protocol::grpc::rewrite_model;
use spillway_protocol::{
    BodyDraft, Changes, Endpoint, GatewayError, KeySources, change, read_facts,
};
use spillway_types::ModelName;
use spillway_upstream::RequestBody;
use spillway_view::{Pin, Route, View};

use crate::affinity::affinity;
use crate::gateway::RoutingState;
use crate::path::{Renamed, replica_path};
use crate::prepared::Prepared;
use crate::prompt::{PromptScope, engine_salt, hash_prompt};
use crate::reply_hasher::ReplyHasher;

/// Models that may still serve a request, and the way to write their names into it.
#[derive(Debug)]
pub struct Fallback {
    renaming: Renaming,
    asked: ModelName,
    stand_ins: StandIns<StandIn>,
}

/// Place in a request at which another model is named.
#[derive(Debug)]
pub enum Renaming {
    /// The JSON body. Facts read from it are not kept, because few requests need a fallback: those
    /// read the body again.
    Body {
        /// Body as the client sent it.
        original: Bytes,
    },
    /// The path of a V2 request.
    Path,
    /// The gRPC message.
    Message {
        /// Message as the client sent it.
        original: Bytes,
    },
    /// The request names no model.
    Nothing,
}

#[derive(Debug)]
struct StandIn {
    model: ModelName,
    pin: Option<Pin>,
}

impl Fallback {
    /// Returns the models to fall back to; `None` if there are no others.
    pub fn of(
        view: &View,
        grant: &Grant,
        route: &Arc<Route>,
        (model, pin): (&ModelName, Option<&Pin>),
        renaming: impl FnOnce() -> Renaming,
    ) -> Option<Self> {
        let others = view.names().fallbacks(model);
        if others.is_empty() {
            return None;
        }
        let served = |stand_in: StandIn| {
            let route = route_for(view, route, &stand_in.model)?;
            let group = route.group_for(Some(&stand_in.model), stand_in.pin.as_ref()).ok()??;
            Some(ServedModel { model: stand_in, is_open: group.is_open() })
        };
        let asked = served(StandIn { model: model.clone(), pin: pin.cloned() });
        // A key that does not allow the stand-in gets an error instead.
        let others = others.iter().filter(|other| grant.allows(other));
        let others = others.filter_map(|other| served(StandIn { model: other.clone(), pin: None }));
        let stand_ins = StandIns::of(asked, others);
        Some(Self { renaming: renaming(), asked: model.clone(), stand_ins })
    }
}

impl Prepared {
    /// Returns true if another model is to be tried before the one that the client asked for.
    pub fn starts_elsewhere(&self) -> bool {
        self.target.fallback.as_ref().is_some_and(|fallback| fallback.stand_ins.starts_elsewhere())
    }

    /// Returns true if there is a stand-in for the model that the request names now.
    pub fn has_stand_in(&self) -> bool {
        self.target.fallback.as_ref().is_some_and(|fallback| fallback.stand_ins.is_any_left())
    }

    /// Returns the model that the client asked for, if the request is for another one now.
    pub fn fell_back_from(&self) -> Option<&ModelName> {
        let asked = &self.target.fallback.as_ref()?.asked;
        (self.inquiry.model.as_ref() != Some(asked)).then_some(asked)
    }

    /// Changes the request to the next model that may serve it. Returns false if there is none.
    pub fn fall_back(&mut self, view: &View, routing: &RoutingState, head: &Parts) -> bool {
        let Some(mut fallback) = self.target.fallback.take() else { return false };
        let mut found = false;
        while !found && let Some(next) = fallback.stand_ins.take_next() {
            let Some(route) = route_for(view, &self.route, &next.model) else { continue };
            let route = Arc::clone(route);
            // A stand-in whose route refuses the request is passed over.
            found = self.rename(&fallback.renaming, &route, &next, (routing, head)).is_ok();
            if found {
                self.inquiry.model = Some(next.model);
                self.target.pin = next.pin;
                self.take_route(route);
                self.follow_as_route();
            }
        }
        self.target.fallback = Some(fallback);
        found
    }

    /// Goes on by this route, and where that may be served.
    pub fn take_route(&mut self, route: Arc<Route>) {
        self.inquiry.residency = self.target.granted.and(&route.spec.residency);
        self.route = route;
    }

    /// Wants no usage of every event where the route of the stand-in continues no streams.
    fn follow_as_route(&mut self) {
        if let Some(usage) = &mut self.usage
            && self.route.spec.continuation.is_none()
        {
            usage.is_followed = false;
        }
    }

    /// Gives up all other models from here on.
    pub fn stay_with_model(&mut self) {
        if let Some(fallback) = &mut self.target.fallback {
            fallback.stand_ins.give_up();
        }
    }

    fn rename(
        &mut self,
        renaming: &Renaming,
        route: &Route,
        to: &StandIn,
        (routing, head): (&RoutingState, &Parts),
    ) -> Result<(), GatewayError> {
        match renaming {
            Renaming::Body { original } => {
                let facts = read_facts(original)?;
                let name = to.model.as_str();
                let is_other = facts.model.as_ref().is_none_or(|named| named.value != name);
                let new_model = is_other.then_some(name);
                facts.engine_fields.check(route.spec.engine_fields)?;
                let changes = Changes { model: new_model, ..Changes::default() };
                let body = change(original, &facts, &changes);
                let tenant = self.inquiry.tenant.as_ref().filter(|_| self.inquiry.is_isolated);
                let scope = PromptScope { model: &to.model, tenant };
                let hasher = routing.prompt_hasher();
                let salt = engine_salt(&hasher, &facts, original, scope);
                self.draft = (self.usage.is_some() || salt.is_some())
                    .then(|| BodyDraft::new(original, &facts, new_model, salt));
                let (prompt, end) = hash_prompt(&hasher, &facts, original, scope);
                self.reply_hasher = ReplyHasher::of(end, route.spec.policy, &facts, original);
                let sources = KeySources {
                    headers: &head.headers,
                    user: facts.user.as_deref(),
                    client: self.inquiry.client,
                };
                let hash_by = route.spec.hash_by.as_ref();
                let key = affinity(hash_by, &routing.key_hasher, sources, &prompt.blocks);
                // The client's own keys may have left the headers by now.
                self.inquiry.affinity = key.or(self.inquiry.affinity);
                self.inquiry.prefix = prompt.blocks;
                self.inquiry.prompt_bytes = prompt.bytes;
                self.body = RequestBody::Buffered(body);
            }
            Renaming::Path => {
                let endpoint = Endpoint::classify(head.uri.path());
                let version = to.pin.as_ref().map(|pin| &pin.version);
                let renamed = Renamed::of(endpoint, &to.model, version);
                self.path = replica_path(head, route, renamed)?;
            }
            Renaming::Message { original } => {
                let version = to.pin.as_ref().map(|pin| pin.version.as_str());
                let body = rewrite_model(original, to.model.as_str(), version);
                self.body = RequestBody::Buffered(body);
            }
            Renaming::Nothing => {}
        }
        Ok(())
    }
}

/// Returns the route of a stand-in model: the request's own if it knows the model, else the route
/// that would serve a request for that model.
fn route_for<'v>(view: &'v View, own: &'v Arc<Route>, model: &ModelName) -> Option<&'v Arc<Route>> {
    // A path prefix binds a request to its route, whatever the model.
    if own.group(Some(model)).is_some() || own.spec.path_prefix.is_some() {
        return Some(own);
    }
    let route = view.route_of_model(Some(model))?;
    Some(if own.is_over_grpc() { route.over_grpc() } else { route })
}

#[cfg(test)]
#[path = "fallback_test.rs"]
mod tests;
