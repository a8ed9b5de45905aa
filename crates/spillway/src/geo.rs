//! `spillway geo`: location of an address by location databases.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spillway_geo::{ClientLocation, Locator};

use crate::cli::GeoArgs;
use crate::output;

/// Looks an address up.
///
/// # Errors
/// Returns an error if a file can't be read, or is no database of the expected type.
pub(crate) fn run(args: &GeoArgs) -> Result<()> {
    let mut locator = Locator::from_bytes(read(&args.database)?, None)
        .with_context(|| args.database.display().to_string())?;
    if let Some(path) = &args.asn_database {
        locator = locator.with_asns(read(path)?).with_context(|| path.display().to_string())?;
    }
    let place = locator.locate(args.address);
    let (database, asn_database) = locator.databases();
    let text = if args.json {
        let mut shown = shown(&place);
        shown["address"] = json!(args.address);
        shown["database"] = json!(database.database_type);
        shown["asn_database"] = json!(asn_database.map(|database| database.database_type));
        shown.to_string()
    } else {
        picture(&place)
    };
    output::line(&text)?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("can't read {}", path.display()))
}

fn shown(place: &ClientLocation) -> Value {
    json!({
        "country": place.country,
        "latitude": place.coordinates.map(|point| point.latitude),
        "longitude": place.coordinates.map(|point| point.longitude),
        "asn": place.asn,
    })
}

fn picture(place: &ClientLocation) -> String {
    let known = [
        place.country.map(|country| format!("country {country}")),
        place
            .coordinates
            .map(|point| format!("latitude {}, longitude {}", point.latitude, point.longitude)),
        place.asn.map(|asn| format!("autonomous system {asn}")),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    if known.is_empty() { "unknown".to_owned() } else { known.join("\n") }
}

#[cfg(test)]
mod tests {
    use spillway_geo::Coordinates;

    use super::*;

    #[test]
    fn what_is_known_of_a_place_is_shown() {
        let place = ClientLocation {
            country: "DE".parse().ok(),
            coordinates: Coordinates::new(50.11, 8.68),
            asn: Some(64_500),
        };
        let text = "country DE\nlatitude 50.11, longitude 8.68\nautonomous system 64500";
        assert_eq!(picture(&place), text);
        assert_eq!(picture(&ClientLocation::default()), "unknown");
        let expected =
            json!({ "country": "DE", "latitude": 50.11, "longitude": 8.68, "asn": 64_500 });
        assert_eq!(shown(&place), expected);
    }
}
