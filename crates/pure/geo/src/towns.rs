//! Coordinates of the regions of public clouds, for configs that use the same region names.

use crate::Coordinates;

/// Regions by name, each with the latitude and longitude of the town or area that its provider
/// names.
///
/// Towns are from the providers' public lists ("AWS Regions", "Google Cloud locations", "Azure
/// regions list"); coordinates are from GeoNames, to a tenth of a degree: 11 km, or 0.2 ms of round
/// trip.
const TOWNS: &[(&str, f64, f64)] = &[
    // Amazon Web Services.
    ("af-south-1", -33.9, 18.4),
    ("ap-east-1", 22.3, 114.2),
    ("ap-northeast-1", 35.7, 139.7),
    ("ap-northeast-2", 37.6, 127.0),
    ("ap-northeast-3", 34.7, 135.5),
    ("ap-south-1", 19.1, 72.9),
    ("ap-south-2", 17.4, 78.5),
    ("ap-southeast-1", 1.3, 103.9),
    ("ap-southeast-2", -33.9, 151.2),
    ("ap-southeast-3", -6.2, 106.8),
    ("ap-southeast-4", -37.8, 145.0),
    ("ca-central-1", 45.5, -73.6),
    ("ca-west-1", 51.0, -114.1),
    ("eu-central-1", 50.1, 8.7),
    ("eu-central-2", 47.4, 8.5),
    ("eu-north-1", 59.3, 18.1),
    ("eu-south-1", 45.5, 9.2),
    ("eu-south-2", 41.7, -0.9),
    ("eu-west-1", 53.3, -6.3),
    ("eu-west-2", 51.5, -0.1),
    ("eu-west-3", 48.9, 2.4),
    ("il-central-1", 32.1, 34.8),
    ("me-central-1", 25.2, 55.3),
    ("me-south-1", 26.2, 50.6),
    ("sa-east-1", -23.5, -46.6),
    ("us-east-1", 39.0, -77.5),
    ("us-east-2", 40.0, -83.0),
    ("us-west-1", 37.8, -122.4),
    ("us-west-2", 45.8, -119.7),
    // Google Cloud.
    ("asia-east1", 24.1, 120.5),
    ("asia-northeast1", 35.7, 139.7),
    ("asia-south1", 19.1, 72.9),
    ("asia-southeast1", 1.3, 103.9),
    ("australia-southeast1", -33.9, 151.2),
    ("europe-north1", 60.6, 27.2),
    ("europe-west1", 50.5, 3.8),
    ("europe-west2", 51.5, -0.1),
    ("europe-west3", 50.1, 8.7),
    ("europe-west4", 53.4, 6.8),
    ("northamerica-northeast1", 45.5, -73.6),
    ("southamerica-east1", -23.5, -46.6),
    ("us-central1", 41.3, -95.9),
    ("us-east1", 33.2, -80.0),
    ("us-east4", 39.0, -77.5),
    ("us-west1", 45.6, -121.2),
    // Microsoft Azure.
    ("eastus", 37.4, -79.8),
    ("germanywestcentral", 50.1, 8.7),
    ("japaneast", 35.7, 139.7),
    ("northeurope", 53.3, -6.3),
    ("southeastasia", 1.3, 103.9),
    ("swedencentral", 60.7, 17.1),
    ("westeurope", 52.4, 4.9),
    ("westus2", 47.2, -119.9),
];

/// Returns the coordinates of the region with this name at a cloud provider; `None` for other
/// names.
#[must_use]
pub fn town_of(region: &str) -> Option<Coordinates> {
    let (_, latitude, longitude) = TOWNS.iter().find(|(name, ..)| *name == region)?;
    Coordinates::new(*latitude, *longitude)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_region_of_the_table_is_on_earth_and_named_once() {
        let names: BTreeSet<&str> = TOWNS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names.len(), TOWNS.len());
        assert!(names.iter().all(|name| town_of(name).is_some()));
        assert_eq!(town_of("eu"), None);
    }

    #[test]
    fn neighbours_are_nearer_than_other_continents() {
        let distance = |one, other| town_of(one).unwrap().distance_km(town_of(other).unwrap());
        assert!(distance("eu-central-1", "europe-west3") < 1.0);
        assert!(distance("eu-central-1", "eu-west-1") < 1_200.0);
        assert!(distance("eu-west-1", "us-east-1") < distance("eu-west-1", "us-west-2"));
        assert!(distance("ap-southeast-1", "ap-northeast-1") < 5_500.0);
    }
}
