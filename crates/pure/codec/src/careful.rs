//! A deserializer that wraps another one and does not trust lengths in the input.
//!
//! Bincode reads a length and passes it on: a string is allocated by that length, and a list by
//! serde's guess of up to a mebibyte. Here strings and bytes are borrowed from the input, which
//! must hold them whole, before anything copies them. Lists grow as their elements arrive. All
//! lists together have at most as many elements as the input has bytes, so that a list of empty
//! elements cannot go on forever.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The wrapping deserializer. Everything nested in it is wrapped as well.
pub(crate) struct Careful<'b, T> {
    inner: T,
    /// Number of elements that may still come.
    elements: &'b Cell<usize>,
    /// True inside a list or map, whose length the input claims. Structs and tuples are visited in
    /// the same way, but the program knows the number of their fields.
    claimed: bool,
}

impl<'b, T> Careful<'b, T> {
    /// Wraps `inner`. `elements` is the number of elements that all lists and maps together may
    /// have.
    pub(crate) fn new(inner: T, elements: &'b Cell<usize>) -> Self {
        Self { inner, elements, claimed: false }
    }

    fn with<U>(&self, inner: U) -> Careful<'b, U> {
        Careful { inner, elements: self.elements, claimed: false }
    }

    fn count<V, E: Error>(&self, element: Option<V>) -> Result<Option<V>, E> {
        if self.claimed && element.is_some() {
            let left = self.elements.get().checked_sub(1);
            self.elements.set(left.ok_or_else(|| E::custom("more elements than bytes"))?);
        }
        Ok(element)
    }
}

/// Methods whose visitor sees no nested value.
macro_rules! plain {
    ($($method:ident => $inner:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$inner(visitor)
        })*
    };
}

/// Methods whose visitor gets a nested value.
macro_rules! nested {
    ($($method:ident($($argument:ident: $type:ty),*),)*) => {
        $(fn $method<V: Visitor<'de>>(
            self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            let visitor = self.with(visitor);
            self.inner.$method($($argument,)* visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Careful<'_, D> {
    type Error = D::Error;

    plain! {
        deserialize_any => deserialize_any,
        deserialize_bool => deserialize_bool,
        deserialize_i8 => deserialize_i8,
        deserialize_i16 => deserialize_i16,
        deserialize_i32 => deserialize_i32,
        deserialize_i64 => deserialize_i64,
        deserialize_i128 => deserialize_i128,
        deserialize_u8 => deserialize_u8,
        deserialize_u16 => deserialize_u16,
        deserialize_u32 => deserialize_u32,
        deserialize_u64 => deserialize_u64,
        deserialize_u128 => deserialize_u128,
        deserialize_f32 => deserialize_f32,
        deserialize_f64 => deserialize_f64,
        deserialize_char => deserialize_char,
        deserialize_str => deserialize_str,
        // Read as borrowed text, so that bincode allocates nothing by a length that the input
        // claims.
        deserialize_string => deserialize_str,
        deserialize_bytes => deserialize_bytes,
        deserialize_byte_buf => deserialize_bytes,
        deserialize_unit => deserialize_unit,
        deserialize_identifier => deserialize_identifier,
        deserialize_ignored_any => deserialize_ignored_any,
    }

    nested! {
        deserialize_option(),
        deserialize_newtype_struct(name: &'static str),
        deserialize_tuple(len: usize),
        deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_struct(name: &'static str, fields: &'static [&'static str]),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = Careful { claimed: true, ..self.with(visitor) };
        self.inner.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = Careful { claimed: true, ..self.with(visitor) };
        self.inner.deserialize_map(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Careful<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        let value = self.with(value);
        self.inner.visit_some(value)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        let value = self.with(value);
        self.inner.visit_newtype_struct(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        let list = Careful { claimed: self.claimed, ..self.with(list) };
        self.inner.visit_seq(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let map = Careful { claimed: self.claimed, ..self.with(map) };
        self.inner.visit_map(map)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, choice: A) -> Result<Self::Value, A::Error> {
        let choice = self.with(choice);
        self.inner.visit_enum(choice)
    }
}

// `size_hint` keeps its default, "unknown", on purpose: a collector of the elements then reserves
// nothing.
impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Careful<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let seed = self.with(seed);
        let element = self.inner.next_element_seed(seed)?;
        self.count(element)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Careful<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let seed = self.with(seed);
        let key = self.inner.next_key_seed(seed)?;
        self.count(key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.next_value_seed(seed)
    }
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for Careful<'b, A> {
    type Error = A::Error;
    type Variant = Careful<'b, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Self::Variant), A::Error> {
        let seed = self.with(seed);
        let elements = self.elements;
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, Careful::new(variant, elements)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Careful<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Careful<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.deserialize(deserializer)
    }
}
