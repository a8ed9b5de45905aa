//! Context for reading a request, and what all kinds of requests have in common.

use std::net::IpAddr;
use std::time::Instant;

use http::HeaderMap;
use http::request::Parts;
use spillway_front::access::Grant;
use spillway_protocol::{
    Echo, ErrorKind, GatewayError, KeySources, MissingRoute, is_encoded, nearest_path,
};
use spillway_transport::WireBody;
use spillway_types::{Deadline, Inquiry, ModelName};
use spillway_view::{GuestTerms, Route, View};

use crate::affinity::affinity;
use crate::asked_timeout::asked_timeout;
use crate::gateway::Gateway;
use crate::intake::{Buffered, buffer, refuse_announced};
use crate::prompt::Prompt;

/// Parts of a body that routing uses; empty if the body is not read.
#[derive(Debug, Default)]
pub struct Contents<'f> {
    pub(crate) prompt: Prompt,
    pub(crate) output_tokens_max: Option<u32>,
    /// True if the reply is a generated text that comes in one piece.
    pub(crate) is_whole: bool,
    /// Number of answers to generate; 0 if unknown.
    pub(crate) answers: u32,
    pub(crate) user: Option<&'f str>,
}

/// Context for reading a request.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// State that all requests share.
    pub gateway: &'a Gateway,
    /// View that serves the request.
    pub view: &'a View,
    /// Head of the request.
    pub head: &'a Parts,
    /// Address of the client.
    pub client: IpAddr,
    /// True if the client's address belongs to a single client.
    pub is_one_client: bool,
    /// Arrival of the request.
    pub started: Instant,
    /// Terms of the node that forwarded the request; `None` for a client's own request.
    pub guest: Option<&'a GuestTerms>,
    /// Permissions of the credential.
    pub grant: &'a Grant,
}

impl Surroundings<'_> {
    /// Reads the whole body.
    ///
    /// # Errors
    /// Returns an error if it is too large or too slow, or if memory is short.
    pub async fn buffer(self, body: &mut WireBody) -> Result<Buffered, GatewayError> {
        let bytes_max = self.gateway.door.limits().body_bytes_max;
        let body = refuse_announced(body.take(), &self.head.headers, bytes_max).await?;
        let holder = self
            .is_one_client
            .then(|| self.gateway.door.body_holder(self.client, &self.gateway.routing.key_hasher));
        buffer(&self.gateway.door, holder, body).await
    }

    /// Returns the number of engines that died while they served the request at other nodes.
    pub fn deaths(self) -> u8 {
        self.guest.map_or(0, |guest| guest.deaths)
    }

    /// Returns what routing may know of the request.
    pub fn inquiry(
        self,
        route: &Route,
        model: Option<ModelName>,
        contents: Contents<'_>,
    ) -> Result<Inquiry, GatewayError> {
        let Contents { prompt, output_tokens_max, is_whole, answers, user } = contents;
        let Prompt { blocks: prefix, bytes: prompt_bytes, .. } = prompt;
        let asked = match self.guest {
            Some(guest) => Some(guest.time_left),
            None => asked_timeout(&self.head.headers)?,
        };
        let total = route.spec.timeouts.total;
        let budget = asked.map_or(total, |asked| asked.min(total));
        let sources = KeySources { headers: &self.head.headers, user, client: self.client };
        let hash_by = route.spec.hash_by.as_ref();
        let output_tokens = self.usual_output(route, model.as_ref());
        let whole_tokens = is_whole.then(|| {
            let usual = output_tokens.unwrap_or(route.spec.tuning.predicted.output_tokens);
            output_tokens_max.map_or(usual, |most| most.min(usual))
        });
        Ok(Inquiry {
            affinity: affinity(hash_by, &self.gateway.routing.key_hasher, sources, &prefix),
            session: None,
            model,
            prefix,
            prompt_bytes,
            output_tokens_max,
            output_tokens,
            whole_tokens,
            answers: answers.max(1),
            client: self.client,
            deadline: Deadline::after(self.started, budget),
            hop: self.guest.map_or(0, |guest| guest.hop),
            tenant: self.grant.tenant.clone(),
            priority: self.grant.priority,
            residency: self.grant.allowed().and(&route.spec.residency),
            is_isolated: self.grant.is_isolated,
        })
    }

    /// Returns the tokens that replies of the model on this route usually have; `None` while that is
    /// unknown.
    fn usual_output(self, route: &Route, model: Option<&ModelName>) -> Option<u32> {
        self.gateway.clients.quotas.usual_output(route.spec.name.as_str(), model?.as_str())
    }
}

/// Refuses a compressed body, which cannot be read for its model without unpacking.
pub fn refuse_encoding(headers: &HeaderMap) -> Result<(), GatewayError> {
    if !is_encoded(headers) {
        return Ok(());
    }
    let message = "compressed request bodies are not read here: send the body as it is";
    Err(GatewayError::new(ErrorKind::UnsupportedMediaType, message))
}

/// Returns the error for a path that nothing here serves.
pub fn no_such_path(head: &Parts) -> GatewayError {
    let (method, path) = (Echo(head.method.as_str()), Echo(head.uri.path()));
    let near = || nearest_path(head.uri.path()).filter(|near| *near != head.uri.path());
    let hint = match MissingRoute::of(head.uri.path()) {
        Some(route) => format!(": replicas may serve it, with this route in the config\n\n{route}"),
        None => near().map(|near| format!(": did you mean {near}?")).unwrap_or_default(),
    };
    let message = format!("nothing is served at {method} {path}{hint}");
    GatewayError::new(ErrorKind::RouteNotFound, message)
}
