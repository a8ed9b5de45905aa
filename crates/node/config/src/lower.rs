//! Turns the sections of a file into a checked config: the checks that need more than one value.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::take;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;

use spillway_admin::{AdminConfig, check_listener, parse_token_file};
use spillway_front::client::{Listener, ListenerSpec, ServerTls, TlsIdentity};
use spillway_geo::dns::DnsConfig;
use spillway_health::SteeringConfig;
use spillway_protocol::TrustedProxies;
use spillway_rate_limit::LimitTerms;
use spillway_request::cors::Cors;
use spillway_request::gateway::GatewayConfig;
use spillway_resolver::SystemFiles;
use spillway_traces::TracesConfig;
use spillway_types::{Millis, ModelName};
use spillway_upstream::Timeouts;
use spillway_usage::PriceList;
use spillway_view::{NameSpec, QueueSpec, RouteSpec, WaitTotals};
use toml::Spanned;

use crate::access_log_section::{AccessLogConfig, lower_access_log};
use crate::access_section::{AccessConfig, AccessSections, ListenerAccess};
use crate::addresses::{check_addresses, check_replicas};
use crate::at_start::AtStart;
use crate::care_section::CareDefaults;
use crate::cluster_section::{ClusterConfig, ClusterSections, check_names};
use crate::config::{AdminListener, Config, ListenerConfig, WorldConfig};
use crate::discovery_section::{DiscoveryConfig, lower_discoveries};
use crate::error::{ConfigError, ConfigErrors, all};
use crate::file::ConfigFile;
use crate::geo_section::lower_geo;
use crate::limit_section::{Limited, lower_limits};
use crate::names::{NameSections, ServedNames};
use crate::no_effect;
use crate::recovery::LostParts;
use crate::replica::ReplicaConfig;
use crate::replica_list::lower_replicas;
use crate::route_record::RoutesSaid;
use crate::route_section::RouteSection;
use crate::section::{AdminSection, ListenerSection, NodeSection, ProxyProtocol, TlsSection};
use crate::session_section::check_session_cookie;
use crate::source::{Source, read_file};
use crate::start_positions::StartPositions;
use crate::suggestion::nearest;
use crate::traces_section::lower_traces;
use crate::usage_section::{UsageConfig, lower_usage};

/// Checks a file as a whole.
///
/// # Errors
/// Returns all faults, with their lines.
pub(crate) fn lower(
    source: &Source,
    mut file: ConfigFile,
    lost: &LostParts,
) -> Result<Config, ConfigErrors> {
    // Taken before the code below moves the sections out of the file.
    let places = StartPositions::new(source, &file);
    let mut errors = ConfigErrors::default();
    errors.keep(check_names(source, [&file.node.name, &file.node.region]));
    errors.keep(check_addresses(source, &file));
    errors.keep(check_replicas(source, &file));
    let doors = errors.keep(lower_doors(source, &mut file, lost));
    let fleet = errors.keep(lower_fleet(source, &mut file));
    let has_replicas =
        fleet.as_ref().is_none_or(|it| !it.replicas.is_empty() || !it.discoveries.is_empty());
    let cluster = errors.keep(lower_cluster(source, &mut file, has_replicas, lost));
    let has_tls =
        doors.as_ref().is_some_and(|it| it.listeners.iter().any(|it| it.spec.tls.is_some()));
    // Without the regions there is nothing to check it against.
    let dns = cluster.as_ref().and_then(|cluster| {
        errors.keep(lower_dns(source, &mut file, cluster.as_ref(), has_tls, lost))
    });
    let told = errors.keep(lower_reporting(source, &mut file));
    let (geo, residency) = (take(&mut file.geo), take(&mut file.residency));
    let geo = errors.keep(lower_geo(source, geo, residency));
    let cluster_known = cluster.as_ref().and_then(Option::as_ref);
    let world = errors.keep(lower_world(source, &mut file, fleet, cluster_known, lost));
    let parts = (doors, cluster, dns, told, geo, world);
    let (Some(doors), Some(cluster), Some(dns), Some(reporting), Some(geo), Some(world)) = parts
    else {
        return Err(errors);
    };
    errors.or(Config {
        workers: worker_count(file.node.workers),
        gateway: lower_gateway(&file),
        listeners: doors.listeners,
        admin: doors.admin,
        access: doors.access,
        limits: doors.limits,
        cluster,
        dns,
        spill: file.spill.config(),
        steering: SteeringConfig::default(),
        knowledge: file.prefix.config(),
        access_log: reporting.access_log,
        traces: reporting.traces,
        geo,
        usage: reporting.usage,
        prices: reporting.prices,
        system_files: SystemFiles::default(),
        world: WorldConfig { cors: doors.cors, identities: doors.identities, ..world },
        drain_notice: file.node.drain_notice_ms.map(Millis::duration),
        drain: file.node.drain_ms.duration(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: file.node.name.into_inner(),
        path: None,
        at_start: AtStart::default(),
        places,
        text: source.text().to_owned(),
        files: source.files(),
        warnings: ConfigErrors::default(),
    })
}

/// Settings of the access log, traces, usage and prices.
struct ReportingConfig {
    access_log: AccessLogConfig,
    traces: Option<Box<TracesConfig>>,
    usage: UsageConfig,
    prices: PriceList,
}

fn lower_reporting(
    source: &Source,
    file: &mut ConfigFile,
) -> Result<ReportingConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let access_log = errors.keep(lower_access_log(source, take(&mut file.access_log)));
    let traces = errors.keep(lower_traces(source, take(&mut file.traces)));
    let usage = errors.keep(lower_usage(source, &file.usage, &file.price));
    let (Some(access_log), Some(traces), Some((usage, prices))) = (access_log, traces, usage)
    else {
        return Err(errors);
    };
    errors.or(ReportingConfig { access_log, traces, usage, prices })
}

fn lower_gateway(file: &ConfigFile) -> GatewayConfig {
    GatewayConfig {
        region: file.node.region.get_ref().clone(),
        country: file.node.country,
        limits: file.limits.clone(),
        retry: file.retry.clone(),
        // The node draws its own seed when it starts.
        seed: 0,
        expose_routing: file.node.expose_routing,
        waiting: WaitTotals::default(),
    }
}

/// Ways into the node, and who may use them.
struct Doors {
    listeners: Vec<ListenerConfig>,
    identities: Vec<Option<TlsIdentity>>,
    access: AccessConfig,
    limits: Vec<LimitTerms>,
    admin: Option<AdminListener>,
    cors: Cors,
}

fn lower_doors(
    source: &Source,
    file: &mut ConfigFile,
    lost: &LostParts,
) -> Result<Doors, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    if !lost.is_in("listener") {
        errors.keep(check_listeners(source, &file.listener));
    }
    let sections = AccessSections {
        auth: take(&mut file.auth),
        keys: take(&mut file.key),
        tenants: take(&mut file.tenant),
    };
    let listeners = all(take(&mut file.listener).into_iter().map(|section| {
        // Keys that could not be read are keys all the same.
        let access = sections.mode_of(source, &section, lost.is_in("key") || lost.is_in("auth"))?;
        lower_listener(source, section, access)
    }));
    let listeners = errors.keep(listeners).unwrap_or_default();
    let (listeners, identities) = listeners.into_iter().unzip();
    let access = errors.keep(sections.lower(source));
    let is_whole = !lost.is_in("key") && !lost.is_in("tenant");
    let known = Limited {
        access: access.as_ref().filter(|_| is_whole),
        is_clustered: file.cluster.is_some(),
    };
    let limits = errors.keep(lower_limits(source, take(&mut file.limit), known));
    let admin = file.admin.as_ref().map(|admin| lower_admin(source, admin)).transpose();
    let admin = errors.keep(admin);
    let cors = errors.keep(file.cors.lower(source));
    let (Some(access), Some(limits), Some(admin), Some(cors)) = (access, limits, admin, cors)
    else {
        return Err(errors);
    };
    errors.or(Doors { listeners, identities, access, limits, admin, cors })
}

/// Replicas, and sources of replicas.
struct Fleet {
    replicas: Vec<ReplicaConfig>,
    discoveries: Vec<DiscoveryConfig>,
    defaults: CareDefaults,
}

fn lower_fleet(source: &Source, file: &mut ConfigFile) -> Result<Fleet, ConfigErrors> {
    let (classes, mappings) = (take(&mut file.classes), take(&mut file.mapping));
    let (health, standby) = (take(&mut file.health), take(&mut file.standby));
    let defaults = CareDefaults::new(health, standby, classes, mappings);
    let mut errors = ConfigErrors::default();
    let replicas = errors.keep(lower_replicas(source, take(&mut file.replica), &defaults));
    let discoveries = take(&mut file.discovery);
    let discoveries = errors.keep(lower_discoveries(source, discoveries, &defaults));
    let (Some(replicas), Some(discoveries)) = (replicas, discoveries) else { return Err(errors) };
    Ok(Fleet { replicas, discoveries, defaults })
}

fn lower_cluster(
    source: &Source,
    file: &mut ConfigFile,
    has_replicas: bool,
    lost: &LostParts,
) -> Result<Option<ClusterConfig>, ConfigErrors> {
    if file.cluster.is_none() && lost.is_in("cluster") {
        return Ok(None);
    }
    let (peers, regions) = (take(&mut file.peer), take(&mut file.region));
    let sections = ClusterSections::new(file.cluster.take(), peers, regions, has_replicas);
    let cluster = sections.lower(source, &file.node.name, &file.node.region)?;
    check_country(source, &file.node, cluster.as_ref())?;
    Ok(cluster)
}

fn lower_dns(
    source: &Source,
    file: &mut ConfigFile,
    cluster: Option<&ClusterConfig>,
    has_tls: bool,
    lost: &LostParts,
) -> Result<Option<DnsConfig>, ConfigErrors> {
    if cluster.is_none() && lost.is_in("cluster") {
        return Ok(None);
    }
    file.dns.take().map(|dns| dns.lower(source, cluster, has_tls)).transpose()
}

/// Checks names and routes against the models of replicas. Where the intended models are unknown,
/// any model and pool counts as served.
fn lower_world(
    source: &Source,
    file: &mut ConfigFile,
    fleet: Option<Fleet>,
    cluster: Option<&ClusterConfig>,
    lost: &LostParts,
) -> Result<WorldConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let is_whole = fleet.is_some() && !lost.is_in("replica") && !lost.is_in("discovery");
    let Fleet { replicas, discoveries, defaults } = fleet.unwrap_or_else(|| Fleet {
        replicas: Vec::new(),
        discoveries: Vec::new(),
        defaults: CareDefaults::default(),
    });
    let (served, is_open) = served_models(&replicas, &discoveries, cluster);
    let specs = replicas.iter().map(|replica| &replica.spec);
    let known = ServedNames::new(&served, specs, is_open || !is_whole);
    // Taken before the checks of names, whose errors are none of the routes.
    let others = OtherNames {
        splits: file.split.iter().map(|split| split.model.get_ref().clone()).collect(),
        with_fallback: file.fallback.keys().cloned().collect(),
    };
    let names =
        NameSections::new(take(&mut file.aliases), take(&mut file.split), take(&mut file.fallback));
    let names = errors.keep(names.lower(source, &known)).unwrap_or_default();
    let found = discoveries.iter().flat_map(DiscoveryConfig::pools);
    let pools = replicas.iter().map(|replica| replica.spec.pool.as_str()).chain(found).collect();
    let pools = is_whole.then_some(&pools);
    let known = KnownNames { served: &known, others: &others, names: &names, pools };
    errors.keep(no_effect::check(source));
    errors.keep(check_routes(source, &file.route, known));
    let base = file.timeouts.over(Timeouts::default());
    let queue = file.spill.queue();
    let (implies_default, said) = (implies_default(&file.route), RoutesSaid::new(&file.route));
    let routes = errors.keep(lower_routes(source, take(&mut file.route), (base, queue)));
    errors.or(WorldConfig {
        cors: Cors::default(),
        identities: Vec::new(),
        replicas,
        discoveries,
        routes: routes.unwrap_or_default(),
        said,
        implies_default,
        names: Arc::new(names),
        defaults,
        timeouts: base,
        queue,
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

/// Returns true if the route `default` is implied, which serves everything that is built in. Routes
/// that name models are the full list of served models, so nothing is implied beside one.
pub(crate) fn implies_default(routes: &[RouteSection]) -> bool {
    routes.iter().all(|route| route.path_prefix.is_some())
}

/// Checks the routes, and adds the one that is implied.
fn lower_routes(
    source: &Source,
    mut routes: Vec<RouteSection>,
    base: (Timeouts, QueueSpec),
) -> Result<Vec<RouteSpec>, ConfigErrors> {
    if implies_default(&routes) {
        routes.push(RouteSection::catch_all());
    }
    all(routes.into_iter().map(|route| route.lower(source, base)))
}

fn lower_admin(source: &Source, section: &AdminSection) -> Result<AdminListener, ConfigError> {
    // A token file that is named but lists no token still makes the API require one, and so no
    // client is admitted.
    let mut api = AdminConfig {
        requires_token: section.token_file.is_some(),
        names: section.names.clone(),
        ..AdminConfig::default()
    };
    if let Some(name) = &section.token_file {
        let path = source.resolve(&name.get_ref().to_string_lossy());
        let read = source.read(&name.get_ref().to_string_lossy());
        let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.map_err(|error| {
            let message = format!("can't read {}: {error}", path.display());
            source.fault(name.span(), message, "check path and rights")
        })?;
        api.tokens = parse_token_file(&text).map_err(|fault| {
            let message = format!("{} line {}: {}", path.display(), fault.line, fault.cause);
            source.fault(name.span(), message, fault.remedy)
        })?;
    }
    let address = *section.address.get_ref();
    check_listener(address, &api).map_err(|_| {
        let message =
            format!("other machines can reach {address}, and no operator would need a token");
        let remedy = "listen on 127.0.0.1, or add token_file = \"...\" to [admin]";
        source.fault(section.address.span(), message, remedy)
    })?;
    let tls = section.tls.as_ref().map(|tls| read_identity(source, tls)).transpose()?;
    if let (Some(identity), Some(section)) = (&tls, &section.tls) {
        // Built once here, so that a key of another certificate shows before a port opens.
        ServerTls::new(identity).map_err(|error| {
            let remedy = "check that both are PEM files and belong together";
            source.fault(section.certificate.span(), error.to_string(), remedy)
        })?;
    }
    Ok(AdminListener { address, api, tls })
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
            .or_else(|_| block.get_ref().parse::<IpAddr>().map(ipnet::IpNet::from));
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
    let said = regions.find(|region| region.name.as_str() == node.region.get_ref());
    match (node.country, said.and_then(|said| said.country)) {
        (Some(own), Some(said)) if own != said => {
            let message = format!("this region is said to be in {own} and in {said}");
            let remedy = "leave `country` out of its own [[region]], or correct it in [node]";
            Err(source.fault(0..0, message, remedy))
        }
        _ => Ok(()),
    }
}

/// Names that routes may use beside models.
struct OtherNames {
    splits: BTreeSet<String>,
    /// Models that have fallbacks.
    with_fallback: BTreeSet<String>,
}

/// Names that routes may refer to.
#[derive(Clone, Copy)]
struct KnownNames<'a> {
    served: &'a ServedNames<'a>,
    others: &'a OtherNames,
    names: &'a NameSpec,
    /// Pools of all replicas; `None` if some are unknown.
    pools: Option<&'a BTreeSet<&'a str>>,
}

fn check_routes(
    source: &Source,
    routes: &[RouteSection],
    known: KnownNames<'_>,
) -> Result<(), ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut places = BTreeMap::new();
    for route in routes {
        let at = route.name.span();
        if let Some(earlier) = places.insert(route.name.get_ref(), at.clone()) {
            let message = format!("a second route is called {:?}", route.name.get_ref());
            errors.add(source.collision(at, earlier, message, "give each its own name"));
        }
        errors.keep(check_route(source, route, known));
    }
    errors.or(())
}

fn check_route(
    source: &Source,
    route: &RouteSection,
    known: KnownNames<'_>,
) -> Result<(), ConfigErrors> {
    let mut errors = ConfigErrors::default();
    if let Some(prefix) = &route.path_prefix
        && !prefix.get_ref().starts_with('/')
    {
        let message = "a path prefix starts with a slash";
        errors.add(source.fault(prefix.span(), message, "write it as /v1/predict"));
    }
    // A model with fallbacks needs no replica: other models serve its requests.
    let has_fallback =
        |model: &&Spanned<String>| known.others.with_fallback.contains(model.get_ref());
    // A default model may also be a split, whose arms are checked with the split.
    let is_split = |model: &&Spanned<String>| known.others.splits.contains(model.get_ref());
    let default = route.model.iter().filter(|model| !is_split(model));
    for model in route.models.iter().chain(default).filter(|model| !has_fallback(model)) {
        errors.keep(known.served.check_model(source, model));
    }
    if let Some(session) = &route.session {
        errors.keep(check_session_cookie(source, session, known.names));
    }
    if let (Some(pool), Some(pools)) = (&route.pool, known.pools)
        && !pools.contains(pool.get_ref().as_str())
    {
        let message = format!("no replica is in the pool {:?}", pool.get_ref());
        let pools: Vec<&str> = pools.iter().copied().collect();
        let remedy = match nearest(pool.get_ref(), &pools) {
            Some(meant) => format!("write pool = {meant:?}, or set pool on the replicas it is for"),
            None => "set pool on the replicas it is for".to_owned(),
        };
        errors.add(source.fault(pool.span(), message, remedy));
    }
    errors.keep(route.check_hash_by(source));
    errors.or(())
}

fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        count => count,
    }
}
