//! From the name that a client asked for to the route, the model and its version.

use std::sync::Arc;

use spillway_protocol::{Echo, ErrorKind, GatewayError};
use spillway_types::{ModelName, ModelVersion, RegionName, ReplicaSlot, Residency};

use crate::coming_guests::ComingGuest;
use crate::names::{Asked, Unresolved};
use crate::remote::{Destination, GuestTerms};
use crate::request::fallback::{Fallback, Renaming};
use crate::request::local::unknown_model;
use crate::request::prepare::Surroundings;
use crate::split::{ArmSources, ChosenArm};
use crate::versions::{NoVersion, Pin, Telling};
use crate::view::Route;

/// What was chosen for a request besides its route and model.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// The version that has to serve it.
    pub(crate) pin: Option<Pin>,
    /// Its arm, if the client asked for a split.
    pub(crate) arm: Option<ChosenArm>,
    /// Who serves it if its model can't.
    pub(crate) fallback: Option<Fallback>,
    /// The node of another region that alone can serve it.
    pub(crate) home: Option<Destination>,
    /// The region where its session is at home, if that is another one.
    pub(crate) session_region: Option<RegionName>,
    /// Its part of the guests that have no place yet, if it is one.
    pub(crate) coming: Option<ComingGuest>,
    /// Where its credential lets it be served, whatever its route says.
    pub(crate) granted: Residency,
}

/// A model as a request asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Its name; `None` wants the route's default.
    pub(crate) name: Option<&'a str>,
    /// Its version, where the request has a place of its own for one.
    pub(crate) version: Option<&'a str>,
    /// The body's user field, if the body is read.
    pub(crate) user: Option<&'a str>,
    /// The replica that stores what the request continues.
    pub(crate) stored_at: Option<ReplicaSlot>,
    pub(crate) place: NamePlace,
}

/// Where the model's name stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamePlace {
    /// In a JSON body, which can be changed, but has no place for a version.
    Body,
    /// In a form, which can't be changed.
    Form,
    /// In a V2 path, beside its version.
    Path,
    /// In a gRPC message, beside its version, where both can be changed.
    Message,
    /// Nowhere: the route says which model it is.
    Route,
}

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) route: Arc<Route>,
    pub(crate) model: ModelName,
    pub(crate) target: Target,
}

impl<'a> Wanted<'a> {
    /// A name and no more.
    pub(crate) fn named(name: Option<&'a str>, place: NamePlace) -> Self {
        Self { name, version: None, user: None, stored_at: None, place }
    }
}

impl Surroundings<'_> {
    /// Finds route, model and version. `prefixed` is the route of the path, if it has one.
    ///
    /// # Errors
    /// If nothing here serves them.
    pub(crate) fn find(
        self,
        prefixed: Option<Arc<Route>>,
        wanted: Wanted<'_>,
    ) -> Result<Found, GatewayError> {
        let default = prefixed.as_ref().and_then(|route| route.spec.default_model.as_ref());
        let default = default.map(ModelName::as_str);
        let name = wanted.name.or(default).ok_or_else(no_model)?;
        let stored_at = wanted.stored_at.map(|slot| self.view.replica(slot).spec());
        let sources = ArmSources { headers: &self.head.headers, user: wanted.user, stored_at };
        let is_fixed = wanted.place == NamePlace::Form;
        let sources = (!is_fixed).then_some(sources);
        let asked = Asked { name, version: wanted.version, sources };
        let resolved = match self.guest.and_then(GuestTerms::resolved) {
            Some(resolved) => Ok(resolved),
            None => self.view.names().resolve(asked, || self.gateway.dice()),
        };
        let resolved = resolved.map_err(|unresolved| self.refuse(unresolved, name))?;
        self.grant.check_name(self.view.names(), Some(name))?;
        let model = resolved.model;
        let route = match prefixed {
            Some(route) => route,
            None => {
                let route = self.view.route_of_model(Some(&model));
                let route = route.ok_or_else(|| self.unknown_model(name))?;
                let is_call = wanted.place == NamePlace::Message;
                Arc::clone(if is_call { route.over_grpc() } else { route })
            }
        };
        let pin = resolved.version.map(|version| Pin { version, telling: wanted.place.telling() });
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
        Ok(Found { route, model, target: Target { pin, arm: resolved.arm, ..Target::default() } })
    }

    fn unknown_model(self, name: &str) -> GatewayError {
        unknown_model(self.gateway, (self.view, self.grant), name)
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
    /// The version to be put into a request that can say it.
    pub(crate) fn version(&self) -> Option<&ModelVersion> {
        self.pin.as_ref().map(|pin| &pin.version)
    }

    /// Lets other models serve the request if its own can't. A client that asked for one version of
    /// a model gets that or nothing.
    pub(crate) fn allow_fallback(
        &mut self,
        around: Surroundings<'_>,
        route: &Arc<Route>,
        model: &ModelName,
        renaming: impl FnOnce() -> Renaming,
    ) {
        let is_exact = self.pin.is_some() && self.arm.is_none();
        // Who stands in for a guest's model is the sender's to say.
        if !is_exact && around.guest.is_none() {
            let asked = (model, self.pin.as_ref());
            self.fallback = Fallback::of((around.view, around.grant), route, asked, renaming);
        }
    }
}

impl NamePlace {
    fn telling(self) -> Telling {
        match self {
            Self::Path | Self::Message => Telling::InRequest,
            Self::Body | Self::Form | Self::Route => Telling::ByChoice,
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

fn no_model() -> GatewayError {
    let message = "the field model is missing: name the model to use";
    GatewayError::new(ErrorKind::BadRequest, message).with_param("model")
}
