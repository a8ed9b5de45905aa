//! Turns the sections of a file into a checked config: the checks that need more than one value.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use spillway_admin::{AdminConfig, check_listener, parse_token_file};
use spillway_front::client::{Listener, ListenerSpec, ServerTls, TlsIdentity};
use spillway_protocol::TrustedProxies;
use spillway_request::gateway::GatewayConfig;
use spillway_types::ModelName;
use spillway_upstream::names::NameSpec;
use spillway_upstream::queue_spec::QueueSpec;
use spillway_upstream::route_spec::RouteSpec;
use spillway_upstream::settings::{Retry, Timeouts};
use toml::Spanned;

use crate::access_section::{AccessSections, ListenerAccess};
use crate::at_start::AtStart;
use crate::care_section::CareDefaults;
use crate::cluster_section::{ClusterConfig, ClusterSections};
use crate::config::{AdminListener, Config, ListenerConfig, WorldConfig};
use crate::discovery_section::{DiscoveryConfig, lower_discoveries};
use crate::error::{ConfigError, Source};
use crate::file::ConfigFile;
use crate::geo_section::lower_geo;
use crate::limit_section::lower_limits;
use crate::names::{NameSections, Served};
use crate::replica::ReplicaConfig;
use crate::replica_list::lower_replicas;
use crate::replica_section::read_file;
use crate::route_section::RouteSection;
use crate::section::{AdminSection, ListenerSection, NodeSection, ProxyProtocol, TlsSection};
use crate::session_section::check_session_cookie;

/// Checks a file as a whole.
///
/// # Errors
/// Returns the first fault, with its line.
pub(crate) fn lower(source: &Source, file: ConfigFile) -> Result<Config, ConfigError> {
    check_listeners(source, &file.listener)?;
    // Taken before the code below moves the sections out of the file.
    let at_start = AtStart::new(&file);
    let sections = AccessSections { auth: file.auth, keys: file.key, tenants: file.tenant };
    let listeners = file.listener.into_iter().map(|section| {
        let access = sections.mode_of(source, &section)?;
        lower_listener(source, section, access)
    });
    let (listeners, identities): (Vec<ListenerConfig>, _) =
        listeners.collect::<Result<Vec<_>, ConfigError>>()?.into_iter().unzip();
    let access = sections.lower(source)?;
    let limits = lower_limits(source, file.limit, (&access, file.cluster.is_some()))?;
    let defaults = CareDefaults::new(file.health, file.standby, file.classes, file.mapping);
    let replicas = lower_replicas(source, file.replica, &defaults)?;
    let discoveries = lower_discoveries(source, file.discovery, &defaults)?;
    let names = NameSections::new(file.aliases, file.split, file.fallback);
    let others = (file.cluster, file.peer, file.region);
    let sections = ClusterSections::new(others, !replicas.is_empty() || !discoveries.is_empty());
    let cluster = sections.lower(source, (&file.node.name, &file.node.region))?;
    check_country(source, &file.node, cluster.as_ref())?;
    let has_tls = listeners.iter().any(|listener| listener.spec.tls.is_some());
    let dns = file.dns.map(|dns| dns.lower(source, cluster.as_ref(), has_tls)).transpose()?;
    let (served, is_open) = served_models(&replicas, &discoveries, cluster.as_ref());
    let known = Served::new(&served, replicas.iter().map(|replica| &replica.spec), is_open);
    let names = names.lower(source, &known)?;
    let found = discoveries.iter().flat_map(DiscoveryConfig::pools);
    let pools = replicas.iter().map(|replica| replica.spec.pool.as_str()).chain(found).collect();
    check_routes(source, &file.route, &pools, (&known, &names))?;
    let base = file.timeouts.over(Timeouts::default());
    let queue = file.spill.queue(source)?;
    Ok(Config {
        workers: worker_count(file.node.workers),
        worker_layout: file.node.worker_layout,
        listeners,
        admin: file.admin.map(|admin| lower_admin(source, &admin)).transpose()?,
        gateway: GatewayConfig {
            region: file.node.region,
            country: file.node.country,
            limits: file.limits.into(),
            retry: Retry::from(file.retry),
            // The node draws its own seed when it starts.
            seed: 0,
            expose_routing: file.node.expose_routing,
            waiting: file.spill.totals(),
        },
        cluster,
        dns,
        spill: file.spill.lower(source)?,
        steering: file.steering.lower(source)?,
        knowledge: file.prefix.lower(source)?,
        access,
        geo: lower_geo(source, file.geo, file.residency)?,
        limits,
        world: WorldConfig {
            cors: file.cors.lower(source)?,
            replicas,
            discoveries,
            routes: lower_routes(source, file.route, (base, queue))?,
            names: Arc::new(names),
            defaults,
            timeouts: base,
            queue,
            identities,
        },
        drain_notice: Duration::from_millis(file.node.drain_notice_ms),
        drain: Duration::from_millis(file.node.drain_ms),
        node: file.node.name,
        path: None,
        at_start,
        text: source.text().to_owned(),
    })
}

/// Returns the models that the file names, and true if there may be others.
fn served_models(
    replicas: &[ReplicaConfig],
    discoveries: &[DiscoveryConfig],
    cluster: Option<&ClusterConfig>,
) -> (BTreeSet<ModelName>, bool) {
    let configured = replicas.iter().flat_map(|replica| replica.spec.models.iter().cloned());
    let found = discoveries.iter().flat_map(DiscoveryConfig::models);
    // Other regions may serve models that this one does not, and some replicas are yet to be asked.
    let is_open = cluster.is_some_and(|cluster| !cluster.peers.is_empty())
        || replicas.iter().any(|replica| replica.settings.needs_models)
        || discoveries.iter().any(DiscoveryConfig::needs_models);
    (configured.chain(found).collect(), is_open)
}

fn check_listeners(source: &Source, listeners: &[ListenerSection]) -> Result<(), ConfigError> {
    if listeners.is_empty() {
        let remedy = "add a [[listener]] with an address, e.g. address = \"127.0.0.1:8080\"";
        return Err(source.fault(0..0, "no listener: clients could not connect", remedy));
    }
    Ok(())
}

/// Checks the routes; a route that serves everything is added if there is none.
fn lower_routes(
    source: &Source,
    mut routes: Vec<RouteSection>,
    base: (Timeouts, QueueSpec),
) -> Result<Vec<RouteSpec>, ConfigError> {
    if !routes.iter().any(|route| route.path_prefix.is_none() && route.models.is_empty()) {
        routes.push(RouteSection::catch_all());
    }
    routes.into_iter().map(|route| route.lower(source, base)).collect()
}

fn lower_admin(source: &Source, section: &AdminSection) -> Result<AdminListener, ConfigError> {
    // A token file that is named but lists no token still asks for one, and so lets nobody in.
    let mut api = AdminConfig {
        requires_token: section.token_file.is_some(),
        names: section.names.clone(),
        ..AdminConfig::default()
    };
    let mut files = Vec::new();
    if let Some(name) = &section.token_file {
        let path = source.resolve(&name.get_ref().to_string_lossy());
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let message = format!("can't read {}: {error}", path.display());
            source.fault(name.span(), message, "check path and rights")
        })?;
        api.tokens = parse_token_file(&text).map_err(|fault| {
            let message = format!("{} line {}: {}", path.display(), fault.line, fault.cause);
            source.fault(name.span(), message, fault.remedy)
        })?;
        files.push(path);
    }
    let address = *section.address.get_ref();
    check_listener(address, &api).map_err(|fault| {
        let remedy = "listen on 127.0.0.1, or add token_file = \"...\" to [admin]";
        source.fault(section.address.span(), fault.to_string(), remedy)
    })?;
    let tls = section.tls.as_ref().map(|tls| read_identity(source, tls)).transpose()?;
    if let (Some(identity), Some(section)) = (&tls, &section.tls) {
        // Built once here, so that a key of another certificate shows before a port opens.
        ServerTls::new(identity).map_err(|error| {
            let remedy = "check that both are PEM files and belong together";
            source.fault(section.certificate.span(), error.to_string(), remedy)
        })?;
        let named = [&section.certificate, &section.key];
        files.extend(named.map(|name| source.resolve(name.get_ref())));
    }
    Ok(AdminListener { address, api, tls, files })
}

fn lower_listener(
    source: &Source,
    section: ListenerSection,
    access: ListenerAccess,
) -> Result<(ListenerConfig, Option<TlsIdentity>), ConfigError> {
    let mut blocks = Vec::new();
    for block in &section.trusted_proxies {
        let parsed = block
            .get_ref()
            .parse::<ipnet::IpNet>()
            .or_else(|_| block.get_ref().parse::<std::net::IpAddr>().map(ipnet::IpNet::from));
        blocks.push(parsed.map_err(|_| {
            let message = format!("{:?} is no address block", block.get_ref());
            source.fault(block.span(), message, "write it as 10.0.0.0/8 or 192.0.2.7")
        })?);
    }
    let requires_proxy_header = section.proxy_protocol == ProxyProtocol::Required;
    if requires_proxy_header && blocks.is_empty() {
        let message = "PROXY headers are required, but no proxy is trusted to send them";
        return Err(source.fault(0..0, message, "set trusted_proxies on that listener"));
    }
    let identity = section.tls.as_ref().map(|tls| read_identity(source, tls)).transpose()?;
    let spec = || ListenerSpec {
        tls: identity.clone(),
        proxy_protocol: requires_proxy_header,
        trusted_proxies: TrustedProxies::new(blocks.clone()),
        access: access.mode,
    };
    // Built once here, so that a key of another certificate shows before a port opens.
    if let (Err(error), Some(tls)) = (Listener::new(spec()), &section.tls) {
        let remedy = "check that both are PEM files and belong together";
        return Err(source.fault(tls.certificate.span(), error.to_string(), remedy));
    }
    let address = section.address.into_inner();
    let shares_port = section.share_port;
    Ok((ListenerConfig { address, shares_port, spec: spec(), access }, identity))
}

fn read_identity(source: &Source, tls: &TlsSection) -> Result<TlsIdentity, ConfigError> {
    Ok(TlsIdentity {
        certificate_pem: read_file(&tls.certificate, source)?,
        key_pem: read_file(&tls.key, source)?,
    })
}

/// Checks that `[node]` and `[[region]]` give the own region one country.
fn check_country(
    source: &Source,
    node: &NodeSection,
    cluster: Option<&ClusterConfig>,
) -> Result<(), ConfigError> {
    let mut regions = cluster.map(|cluster| &cluster.regions[..]).unwrap_or_default().iter();
    let said = regions.find(|region| region.name.as_str() == node.region);
    match (node.country, said.and_then(|said| said.country)) {
        (Some(own), Some(said)) if own != said => {
            let message = format!("this region is said to be in {own} and in {said}");
            let remedy = "leave `country` out of its own [[region]], or correct it in [node]";
            Err(source.fault(0..0, message, remedy))
        }
        _ => Ok(()),
    }
}

fn check_routes(
    source: &Source,
    routes: &[RouteSection],
    pools: &BTreeSet<&str>,
    (served, known): (&Served<'_>, &NameSpec),
) -> Result<(), ConfigError> {
    let has_fallback =
        |model: &&Spanned<String>| known.fallbacks.contains_key(model.get_ref().as_str());
    let is_split = |model: &&Spanned<String>| {
        known.splits.iter().any(|split| split.name.as_str() == model.get_ref())
    };
    let mut names = BTreeSet::new();
    for route in routes {
        if !names.insert(route.name.get_ref()) {
            let message = format!("a second route is called {:?}", route.name.get_ref());
            return Err(source.fault(route.name.span(), message, "give each its own name"));
        }
        if let Some(prefix) = &route.path_prefix
            && !prefix.get_ref().starts_with('/')
        {
            let message = "a path prefix starts with a slash";
            return Err(source.fault(prefix.span(), message, "write it as /v1/predict"));
        }
        // A model with fallbacks needs no replica: other models serve its requests.
        for model in route.models.iter().filter(|model| !has_fallback(model)) {
            served.check_model(source, model)?;
        }
        // A default model may also be a split, whose arms are checked with the split.
        for model in route.model.iter().filter(|model| !has_fallback(model) && !is_split(model)) {
            served.check_model(source, model)?;
        }
        if let Some(session) = &route.session {
            check_session_cookie(source, session, known)?;
        }
        if let Some(pool) = &route.pool
            && !pools.contains(pool.get_ref().as_str())
        {
            let message = format!("no replica is in the pool {:?}", pool.get_ref());
            return Err(source.fault(pool.span(), message, "set pool on the replicas it is for"));
        }
        route.check_hash_by(source)?;
    }
    Ok(())
}

fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        count => count,
    }
}
