//! Reads a request far enough to route it. The only place that rejects malformed requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::Method;
use http::request::Parts;
use http_body::Body;
use spillway_front::access::RouteRules;
use spillway_protocol::grpc::speaks_grpc;
use spillway_protocol::{
    BodyDraft, Changes, CompletionApi, Echo, Endpoint, EngineFields, ErrorKind, Facts,
    GatewayError, Protocol, Terms, UsageTelling, UsageWish, change, decode_name, read_facts,
    read_form,
};
use spillway_transport::WireBody;
use spillway_types::ModelName;
use spillway_upstream::RequestBody;
use spillway_view::{Route, WantedUsage};

use crate::continuation_terms::ContinuationTerms;
use crate::cost::{Cost, counts_tokens};
use crate::fallback::Renaming;
use crate::flavour::Flavour;
use crate::grpc::refuse_no_call;
use crate::local::not_known_yet;
use crate::methods::check_method;
use crate::path::{Renamed, replica_path};
use crate::prepared::{Prepared, ReadBody, Routed};
use crate::prompt::{PromptEnd, PromptScope, engine_salt, hash_prompt};
use crate::reply_hasher::ReplyHasher;
use crate::stored::Stored;
use crate::surroundings::{Contents, Surroundings, no_such_path, refuse_encoding};
use crate::target::{NamePosition, ResolvedTarget, Wanted};

/// Reads a request's body and finds its route and model. A body that was not begun stays in `body`. Call
/// [`Surroundings::check_regions`] next, before the request is served.
///
/// # Errors
/// Returns an error if the request is malformed, too large or too slow, or if nothing here serves
/// it.
pub async fn prepare(
    around: Surroundings<'_>,
    body: &mut WireBody,
    endpoint: Endpoint<'_>,
) -> Result<Prepared, GatewayError> {
    let mut prepared = read(around, body, endpoint).await?;
    prepared.target.granted = around.grant.allowed();
    Ok(prepared)
}

async fn read(
    around: Surroundings<'_>,
    body: &mut WireBody,
    endpoint: Endpoint<'_>,
) -> Result<Prepared, GatewayError> {
    let head = around.head;
    // Routes with a prefix go before the built-in endpoints.
    if let Some(route) = around.view.prefixed_route(head.uri.path()) {
        let route = Arc::clone(route);
        if !around.view.is_confined(head.uri.path(), &route) {
            return Err(unclear_path());
        }
        return match route.spec.protocol {
            _ if names_no_model(&route, head, body) => Err(no_body(head)),
            Protocol::OpenAi | Protocol::Anthropic => around.json(body, Some(route)).await,
            Protocol::KServeV2 => around.opaque(body, Flavour::KServeV2, route).await,
            Protocol::Raw => around.opaque(body, Flavour::Raw, route).await,
            Protocol::Grpc if matches!(endpoint, Endpoint::Grpc(_)) => {
                around.passed_call(body.take(), &route)
            }
            Protocol::Grpc => Err(refuse_no_call(head)),
        };
    }
    // Behind a prefix the replicas judge methods; those of built-in endpoints are known here.
    check_method(endpoint, &head.method)?;
    match endpoint {
        Endpoint::Responses
        | Endpoint::ChatCompletions
        | Endpoint::Completions
        | Endpoint::Embeddings
        | Endpoint::Rerank
        | Endpoint::JsonPassthrough => around.json(body, None).await,
        Endpoint::FormPassthrough => around.form(body).await,
        Endpoint::ResponseById { id } => around.stored_response(body, id).await,
        Endpoint::V2Model { .. } => around.v2(body, endpoint).await,
        Endpoint::Grpc(method) => around.call(body.take(), method).await,
        Endpoint::Other if speaks_grpc(&head.headers) => Err(refuse_no_call(head)),
        Endpoint::ModelList
        | Endpoint::ModelById { .. }
        | Endpoint::V2Live
        | Endpoint::V2Ready
        | Endpoint::V2Server
        | Endpoint::Livez
        | Endpoint::Readyz
        | Endpoint::Steering
        | Endpoint::Other => Err(no_such_path(head)),
    }
}

impl Surroundings<'_> {
    /// Prepares a JSON request, whose body names the model.
    async fn json(
        self,
        body: &mut WireBody,
        route: Option<Arc<Route>>,
    ) -> Result<Prepared, GatewayError> {
        refuse_encoding(&self.head.headers)?;
        let flavour = Flavour::of_json(self.head.uri.path());
        let buffered = self.buffer(body).await?;
        let facts = read_facts(&buffered.bytes)?;
        let named = facts.model.as_ref().map(|model| &*model.value).filter(|it| !it.is_empty());
        let user = facts.user.as_deref();
        let stored = match facts.previous_response_id.as_deref() {
            // Boxed, since few requests need its room.
            Some(id) => Box::pin(self.storing(id)).await?,
            None => None,
        };
        let (pinned, home) = stored.map_or((None, None), Stored::split);
        let wanted = Wanted::named(named, NamePosition::Body);
        let wanted = Wanted { user, stored_at: pinned, ..wanted };
        let ResolvedTarget { route, model, mut target } = self.look_for(route, wanted).await?;
        let new_model = Some(model.as_str()).filter(|name| Some(*name) != named);
        // The answer to a stored response needs the replica that stores it, so no other can
        // continue it.
        let is_free = pinned.is_none() && home.is_none();
        let continuing = self.continuing(&route, &facts, &buffered.bytes).filter(|_| is_free);
        let is_followed = continuing.is_some_and(|continuing| continuing.fit.is_ok());
        facts.engine_fields.check(route.spec.engine_fields)?;
        let usage = self.wanted_usage(&route, &facts, flavour, is_followed);
        let changes = Changes { model: new_model, ..Changes::default() };
        let segments = change(&buffered.bytes, &facts, &changes);
        let (contents, end) = self.contents(&facts, &buffered.bytes, &model);
        let reply_hasher = ReplyHasher::of(end, route.spec.policy, &facts, &buffered.bytes);
        let salt = self.salt(&facts, &buffered.bytes, &model);
        let draft = (usage.is_some() || salt.is_some())
            .then(|| BodyDraft::new(&buffered.bytes, &facts, new_model, salt));
        let path = self.head.uri.path();
        let cost = Cost::of_json(path, &facts, &buffered.bytes, &contents.prompt);
        let contents = Contents { answers: cost.answers(), ..contents };
        let stored_for = (flavour == Flavour::Responses && facts.is_stored)
            .then(|| self.name_of_client(named).unwrap_or_else(|| model.clone()));
        target.home = home;
        // A request that needs a stored response cannot go to another model.
        if pinned.is_none() && target.home.is_none() {
            target.allow_fallback(self, &route, &model, || Renaming::Body {
                original: buffered.bytes.clone(),
            });
        }
        let read = ReadBody {
            body: RequestBody::Buffered(segments),
            cost,
            wait: buffered.wait,
            reservation: buffered.reservation,
        };
        let path = replica_path(self.head, &route, None)?;
        let routed = Routed { route, model: Some(model), target, path };
        let mut prepared = self.prepared(routed, contents, flavour, read)?;
        prepared.draft = draft;
        prepared.pinned = pinned;
        prepared.usage = usage;
        prepared.stored_for = stored_for;
        prepared.continuing = continuing;
        prepared.reply_hasher = reply_hasher;
        Ok(prepared)
    }

    /// Returns the name by which the client asked for the model; `None` if it named none.
    fn name_of_client(self, named: Option<&str>) -> Option<ModelName> {
        let of_guest = self.guest.and_then(|guest| guest.named.clone());
        of_guest.or_else(|| named.map(ModelName::from))
    }

    /// Returns the facts for continuing the stream, if the route wants that and the request is a
    /// completion stream.
    fn continuing(
        self,
        route: &Route,
        facts: &Facts<'_>,
        body: &[u8],
    ) -> Option<ContinuationTerms> {
        route.spec.continuation.filter(|_| facts.stream)?;
        let api = match Endpoint::classify(self.head.uri.path()) {
            Endpoint::ChatCompletions => CompletionApi::Chat,
            Endpoint::Completions => CompletionApi::Text,
            _ => return None,
        };
        let fit = Terms::read(body, api).map(|_| ());
        let of_sender = self.guest.and_then(|guest| guest.usage);
        let of_sender = of_sender.map_or(UsageWish::AsSent, WantedUsage::greatest);
        // The sender of a guest needs its reports, and removes them.
        Some(ContinuationTerms { api, telling: UsageTelling::of(facts, body).and(of_sender), fit })
    }

    /// Returns the usage that is wanted of a stream beyond the client's own request. For a guest, its
    /// sender decides.
    fn wanted_usage(
        self,
        route: &Route,
        facts: &Facts<'_>,
        flavour: Flavour,
        is_followed: bool,
    ) -> Option<WantedUsage> {
        if flavour != Flavour::OpenAi || !facts.stream {
            return None;
        }
        let wanted = match self.guest {
            Some(guest) => guest.usage,
            None => WantedUsage::new(route.spec.inject_usage, is_followed),
        };
        // Only a followed stream needs more than the report that the client asks for.
        wanted.filter(|wanted| wanted.is_followed || facts.include_usage != Some(true))
    }

    /// Prepares a multipart upload, one of whose fields names the model.
    async fn form(self, body: &mut WireBody) -> Result<Prepared, GatewayError> {
        refuse_encoding(&self.head.headers)?;
        let buffered = self.buffer(body).await?;
        let form = read_form(&self.head.headers, &buffered.bytes)?;
        let named = form.model;
        let wanted = Wanted::named(named, NamePosition::Form);
        let ResolvedTarget { route, model, target } = self.look_for(None, wanted).await?;
        let mut engine_fields = EngineFields::NONE;
        form.names.iter().for_each(|name| engine_fields.note(name));
        engine_fields.check(route.spec.engine_fields)?;
        check_form_name(named.unwrap_or_default(), &route, &model)?;
        let read = ReadBody {
            cost: Cost::of_upload(buffered.bytes.len()),
            body: RequestBody::Buffered(form.for_servers(&buffered.bytes)),
            wait: buffered.wait,
            reservation: buffered.reservation,
        };
        let path = replica_path(self.head, &route, None)?;
        let routed = Routed { route, model: Some(model), target, path };
        self.prepared(routed, Contents::default(), Flavour::OpenAiNamed, read)
    }

    /// Prepares a request with the model in a V2 path; the body is not read.
    async fn v2(
        self,
        body: &mut WireBody,
        endpoint: Endpoint<'_>,
    ) -> Result<Prepared, GatewayError> {
        let Endpoint::V2Model { model, version, .. } = endpoint else {
            return Err(no_such_path(self.head));
        };
        let name = decode_name(model).ok_or_else(bad_model_path)?;
        let version = version.map(|version| decode_name(version).ok_or_else(bad_model_path));
        let version = version.transpose()?;
        let wanted = Wanted::named(Some(&*name), NamePosition::Path);
        let wanted = Wanted { version: version.as_deref(), ..wanted };
        let ResolvedTarget { route, model, mut target } = self.look_for(None, wanted).await?;
        target.allow_fallback(self, &route, &model, || Renaming::Path);
        let renamed = Renamed::of(endpoint, &model, target.version());
        let path = replica_path(self.head, &route, renamed)?;
        let routed = Routed { route, model: Some(model), target, path };
        self.unread(body, Flavour::KServeV2, routed).await
    }

    /// Returns the salt for replicas that keep cache entries apart; `None` if the tenant needs none.
    fn salt(self, facts: &Facts<'_>, body: &[u8], model: &ModelName) -> Option<String> {
        let scope = PromptScope { model, tenant: self.grant.isolated_tenant() };
        engine_salt(&self.gateway.routing.prompt_hasher(), facts, body, scope)
    }

    fn contents<'f>(
        self,
        facts: &'f Facts<'_>,
        body: &[u8],
        model: &ModelName,
    ) -> (Contents<'f>, Option<PromptEnd>) {
        let scope = PromptScope { model, tenant: self.grant.isolated_tenant() };
        let (prompt, end) = hash_prompt(&self.gateway.routing.prompt_hasher(), facts, body, scope);
        let (output_tokens_max, user) = (facts.max_tokens, facts.user.as_deref());
        let is_whole = !facts.stream && generates_text(self.head.uri.path());
        (Contents { prompt, output_tokens_max, is_whole, answers: 1, user }, end)
    }

    /// Checks that a region may serve the request.
    ///
    /// # Errors
    /// Returns an error if residency rules forbid all regions that could serve it.
    pub fn check_regions(self, prepared: &Prepared) -> Result<(), GatewayError> {
        let asked = &prepared.inquiry.residency;
        if asked.is_anywhere() {
            return Ok(());
        }
        let own = self.gateway.routing.own_region.as_str();
        let regions = self.gateway.routing.regions();
        let is_allowed = match &prepared.target.home {
            Some(home) => self.gateway.routing.may_serve(&home.region, asked),
            None if asked.may_serve(own, regions.own_country) => true,
            // Only replicas of this region can serve such a request.
            None if prepared.pinned.is_some() || prepared.inquiry.model.is_none() => false,
            None => regions.others.iter().any(|other| other.may_serve(asked)),
        };
        if is_allowed {
            return Ok(());
        }
        // A new node may not know yet that another region is in an allowed country.
        if !asked.countries.is_all() && !regions.knows_countries {
            let message = "which regions may serve the request is not known yet: this node has just \
                           started and is still learning their countries";
            return Err(not_known_yet(message));
        }
        self.gateway.counters.residency_refused.fetch_add(1, Ordering::Relaxed);
        let spec = &prepared.route.spec;
        let route = RouteRules { name: &spec.name, residency: &spec.residency };
        Err(self.grant.refuse_region(route, asked, own, regions.own_country))
    }
}

/// Returns true if replies at this path are generated text: those of embeddings are not, however
/// their route is called.
fn generates_text(path: &str) -> bool {
    let is_text = [Flavour::OpenAi, Flavour::Responses, Flavour::Messages];
    is_text.contains(&Flavour::of_json(path)) && !counts_tokens(path)
}

/// Checks the name in an upload. Uploads pass unchanged, so that no name can be replaced or added.
fn check_form_name(named: &str, route: &Route, model: &ModelName) -> Result<(), GatewayError> {
    let is_known_there = || route.group(Some(model)).is_none_or(|group| group.serves_one);
    let message = match named {
        "" if is_known_there() => return Ok(()),
        "" => format!(
            "the field model is missing, and replicas of {model} serve other models too: uploads must \
             name the model"
        ),
        named if named == model.as_str() => return Ok(()),
        alias => {
            format!("{:?} is an alias; uploads must name the model itself: {model}", Echo(alias))
        }
    };
    Err(GatewayError::new(ErrorKind::BadRequest, message).with_param("model"))
}

fn unclear_path() -> GatewayError {
    let message = "servers could read the path as another one: it must have no dot segments, doubled \
                   or encoded slashes, backslashes, semicolons or needless escapes";
    GatewayError::new(ErrorKind::BadRequest, message)
}

/// Returns true for a request without a body on a route that reads the model from there.
fn names_no_model(route: &Route, head: &Parts, body: &WireBody) -> bool {
    let is_read = matches!(route.spec.protocol, Protocol::OpenAi | Protocol::Anthropic);
    let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&head.method);
    is_read && !has_body && body.is_end_stream()
}

fn no_body(head: &Parts) -> GatewayError {
    let method = Echo(head.method.as_str());
    let message = format!(
        "{method} comes without a body, and below this path the model is read from the body: send POST \
         with JSON"
    );
    GatewayError::new(ErrorKind::BadRequest, message)
}

fn bad_model_path() -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, "the model's name in the path is badly encoded")
}

#[cfg(test)]
#[path = "prepare_test.rs"]
mod tests;
