//! The model of a request that names none.

use spillway_protocol::{ErrorKind, GatewayError};
use spillway_types::ModelName;
use spillway_view::Route;

use crate::local::{named_here, not_known_yet};
use crate::surroundings::Surroundings;

impl<'a> Surroundings<'a> {
    /// Returns the name of the only model that the key allows and the route leads to. Aliases are no
    /// further models. Adapters neither, since engines take a request without a name for their base
    /// model.
    ///
    /// # Errors
    /// Returns an error if there are several such models, or none.
    pub(crate) fn only_model(self, prefixed: Option<&Route>) -> Result<&'a str, GatewayError> {
        // The node that sent a guest has chosen its model.
        if let Some(model) = self.guest.and_then(|guest| guest.model.as_ref()) {
            return Ok(model.as_str());
        }
        let of = |adapters| self.usable(prefixed).filter(move |it| it.is_adapter == adapters);
        let only = match only(of(false)) {
            Only::None => only(of(true)),
            only => only,
        };
        match only {
            Only::One(name) => Ok(name),
            Only::None if self.may_learn_models() => {
                let message = "the field model is missing, and no model is known yet: this node is \
                               still learning which ones are served";
                Err(not_known_yet(message).with_param("model"))
            }
            Only::None | Only::Several => Err(self.no_model()),
        }
    }

    /// Returns the error for a request that does not say which model it means.
    pub(crate) fn no_model(self) -> GatewayError {
        let names = named_here(self.view, self.grant);
        let hint = names.map(|names| format!(": name one of {names}")).unwrap_or_default();
        let message = format!("the field model is missing{hint}");
        GatewayError::new(ErrorKind::BadRequest, message).with_param("model")
    }

    /// Returns the names that the request could have, each with the model or split behind it.
    fn usable(self, prefixed: Option<&Route>) -> impl Iterator<Item = Usable<'a>> {
        let Self { view, grant, .. } = self;
        let names = view.names();
        let leads_to = move |model: &ModelName| match prefixed {
            Some(route) => route.leads_to(model),
            None => view.route_of_model(Some(model)).is_some(),
        };
        view.models().iter().filter_map(move |name| {
            let name = name.as_str();
            let behind = names
                .behind(name)
                .filter(|_| grant.allows_name(name, |name| names.behind(name)))?;
            let is_led = names.models_behind(name).into_iter().any(leads_to);
            is_led.then(|| Usable { name, behind, is_adapter: view.is_adapter(behind) })
        })
    }

    fn may_learn_models(self) -> bool {
        !self.gateway.routing.regions().knows_models || !self.view.unread().is_empty()
    }
}

/// A name that a client may ask for.
struct Usable<'v> {
    name: &'v str,
    /// Model or split that the name means.
    behind: &'v ModelName,
    is_adapter: bool,
}

/// Number of models behind some names.
enum Only<'v> {
    None,
    One(&'v str),
    Several,
}

/// Returns the first of the names if all mean the same.
fn only<'v>(mut names: impl Iterator<Item = Usable<'v>>) -> Only<'v> {
    let Some(first) = names.next() else { return Only::None };
    match names.all(|other| other.behind == first.behind) {
        true => Only::One(first.name),
        false => Only::Several,
    }
}
