//! Resolves the name that a client asked for to a route, a model and a version.

use std::sync::Arc;

use spillway_protocol::{Echo, ErrorKind, GatewayError};
use spillway_types::{ModelName, ModelVersion, RegionName, ReplicaSlot, Residency};
use spillway_view::{
    ArmSources, AskedName, ChosenArm, Destination, GuestTerms, NoVersion, PendingGuest, Pin, Route,
    SessionKey, Unresolved, VersionTelling, View,
};

use crate::fallback::{Fallback, Renaming};
use crate::local::unknown_model;
use crate::surroundings::Surroundings;

/// Choices for a request besides its route and model.
#[derive(Debug, Default)]
pub struct Target {
    /// Required version of the model.
    pub pin: Option<Pin>,
    /// Arm, if the client asked for a split.
    pub arm: Option<Box<ChosenArm>>,
    /// Fallback models, if the requested one cannot be served.
    pub fallback: Option<Fallback>,
    /// Node of another region that alone can serve the request.
    pub home: Option<Destination>,
    /// Other region that the request's session belongs to.
    pub session_region: Option<RegionName>,
    /// Key of a session by header that has no home yet.
    pub new_session: Option<SessionKey>,
    /// View in which the model was found, if the request began with an older one.
    pub newer_view: Option<Arc<View>>,
    /// Share of a guest in the count of guests without a slot.
    pub coming: Option<PendingGuest>,
    /// Residency rules of the credential and of the client's country, without those of the route.
    pub granted: Residency,
}

/// Model as a request asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Name of the model; `None` means the route's default.
    pub name: Option<&'a str>,
    /// Version, if the request has a separate field for it.
    pub version: Option<&'a str>,
    /// User field of the body, if the body is read.
    pub user: Option<&'a str>,
    /// Replica that stores the response which the request continues.
    pub stored_at: Option<ReplicaSlot>,
    /// Position of the name in the request.
    pub position: NamePosition,
}

/// Position of the model's name in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePosition {
    /// A JSON body, which can be changed, but has no field for a version.
    Body,
    /// A form, which cannot be changed.
    Form,
    /// A V2 path, next to the version.
    Path,
    /// A gRPC message, next to the version; both can be changed.
    Message,
    /// Nowhere: the route sets the model.
    Route,
}

/// Route and model of a request, with the choices besides.
#[derive(Debug)]
pub struct ResolvedTarget {
    /// Route.
    pub route: Arc<Route>,
    /// Model.
    pub model: ModelName,
    /// Choices besides route and model.
    pub target: Target,
}

impl<'a> Wanted<'a> {
    /// Returns a request for a name without version, user and stored response.
    pub fn named(name: Option<&'a str>, position: NamePosition) -> Self {
        Self { name, version: None, user: None, stored_at: None, position }
    }

    /// Returns the name; `None` if it is missing or empty. llama.cpp's web page sends an empty one.
    fn given_name(self) -> Option<&'a str> {
        self.name.filter(|name| !name.is_empty() || !self.position.may_be_empty())
    }
}

impl Surroundings<'_> {
    /// Finds route, model and version. `prefixed` is the route of the path, if it has one.
    ///
    /// # Errors
    /// Returns an error if nothing here serves the model.
    pub fn find(
        self,
        prefixed: Option<Arc<Route>>,
        wanted: Wanted<'_>,
    ) -> Result<ResolvedTarget, GatewayError> {
        let default = prefixed.as_ref().and_then(|route| route.spec.default_model.as_ref());
        let default = default.map(ModelName::as_str);
        let name = match wanted.given_name().or(default) {
            Some(name) => name,
            None if wanted.position.may_be_empty() => self.only_model(prefixed.as_deref())?,
            None => return Err(self.no_model()),
        };
        // Before anything is said about the name.
        if !self.grant.may_ask_for(name, |name| self.view.names().behind(name)) {
            return Err(self.unknown_model(name));
        }
        let stored_at = wanted.stored_at.map(|slot| self.view.replica(slot).spec());
        let sources = ArmSources { headers: &self.head.headers, user: wanted.user, stored_at };
        let is_fixed = wanted.position == NamePosition::Form;
        let sources = (!is_fixed).then_some(sources);
        let asked = AskedName { name, version: wanted.version, sources };
        // The node that sent a guest has resolved its name and drawn its arm.
        let resolved = match self.guest.and_then(GuestTerms::resolved) {
            Some(resolved) => Ok(resolved),
            None => self.view.names().resolve(asked, || self.gateway.routing.dice()),
        };
        let resolved = resolved.map_err(|unresolved| self.refuse(unresolved, name))?;
        let model = resolved.model;
        let route = match prefixed {
            Some(route) => route,
            None => {
                let route = self.view.route_of_model(Some(&model));
                let route = route.ok_or_else(|| self.unknown_model(name))?;
                let is_call = wanted.position == NamePosition::Message;
                Arc::clone(if is_call { route.over_grpc() } else { route })
            }
        };
        let pin =
            resolved.version.map(|version| Pin { version, telling: wanted.position.telling() });
        let group = route.group_for(Some(&model), pin.as_ref());
        // Guests were sent here to be served here.
        let is_elsewhere = self.guest.is_none() && self.view.is_known(&model);
        let group = match group {
            Err(_) if is_elsewhere => None,
            group => {
                group.map_err(|no_version| refuse_version(&model, pin.as_ref(), no_version))?
            }
        };
        let has_fallback = !self.view.names().fallbacks(&model).is_empty();
        if group.is_none() && !has_fallback && !is_elsewhere {
            return Err(match self.view.route_of_model(Some(&model)) {
                Some(other) if route.is_over_grpc() && other.group(Some(&model)).is_some() => {
                    speaks_no_grpc(&model)
                }
                _ => self.unknown_model(model.as_str()),
            });
        }
        Ok(ResolvedTarget {
            route,
            model,
            target: Target { pin, arm: resolved.arm, ..Target::default() },
        })
    }

    fn unknown_model(self, name: &str) -> GatewayError {
        unknown_model(&self.gateway.routing, self.view, self.grant, name)
    }

    fn refuse(self, unresolved: Unresolved, name: &str) -> GatewayError {
        let shown = Echo(name);
        let (kind, message) = match unresolved {
            Unresolved::Unknown => return self.unknown_model(name),
            Unresolved::VersionOfSplit => (
                ErrorKind::ModelNotFound,
                format!("{shown:?} is a split and has no versions: ask for a version of a model"),
            ),
            Unresolved::TwoVersions => {
                (ErrorKind::BadRequest, format!("{shown:?} and the path name different versions"))
            }
            Unresolved::FixedName => {
                (ErrorKind::BadRequest, format!("{shown:?} is a split; uploads must name a model"))
            }
        };
        GatewayError::new(kind, message).with_param("model")
    }
}

impl Target {
    /// Returns the version to write into a request that has a field for it.
    pub fn version(&self) -> Option<&ModelVersion> {
        self.pin.as_ref().map(|pin| &pin.version)
    }

    /// Lets fallback models serve the request if its own cannot. A client that asked for one
    /// version of a model gets that or an error.
    pub fn allow_fallback(
        &mut self,
        around: Surroundings<'_>,
        route: &Arc<Route>,
        model: &ModelName,
        renaming: impl FnOnce() -> Renaming,
    ) {
        let is_exact = self.pin.is_some() && self.arm.is_none();
        // The sending node decides about fallbacks of a guest.
        if !is_exact && around.guest.is_none() {
            let asked = (model, self.pin.as_ref());
            self.fallback = Fallback::of(around.view, around.grant, route, asked, renaming);
        }
    }
}

impl NamePosition {
    /// Returns true if a request may leave out the name where it can mean one model alone.
    fn may_be_empty(self) -> bool {
        matches!(self, Self::Body | Self::Form)
    }

    fn telling(self) -> VersionTelling {
        match self {
            Self::Path | Self::Message => VersionTelling::InRequest,
            Self::Body | Self::Form | Self::Route => VersionTelling::ByChoice,
        }
    }
}

fn refuse_version(model: &ModelName, pin: Option<&Pin>, no_version: NoVersion) -> GatewayError {
    let version = Echo(pin.map(|pin| pin.version.as_str()).unwrap_or_default());
    let message = match no_version {
        NoVersion::Unknown(known) if known.is_empty() => {
            format!("no replica says that it serves version {version:?} of the model {model}")
        }
        NoVersion::Unknown(known) => {
            let known: Vec<&str> = known.iter().map(ModelVersion::as_str).collect();
            let known = known.join(", ");
            format!("the model {model} has no version {version:?}; served here: {known}")
        }
        NoVersion::NotAlone => format!(
            "every replica with version {version:?} of the model {model} serves others too, and \
             this API has no field to tell it which one is meant: use /v2/models/{model}/versions"
        ),
    };
    GatewayError::new(ErrorKind::ModelNotFound, message).with_param("model")
}

fn speaks_no_grpc(model: &ModelName) -> GatewayError {
    let message = format!("no replica of the model {model} speaks gRPC");
    GatewayError::new(ErrorKind::NoReplica, message)
}
