//! Enums whose variants have names in files and arguments.

/// Implements names, and serialization by name, for a plain enum.
macro_rules! named {
    ($type:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// The names of all variants.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name in files and arguments.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }

            /// The variant with this name.
            pub fn named(name: &str) -> Option<$type> {
                match name {
                    $($name => Some($type::$variant),)+
                    _ => None,
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let name = String::deserialize(deserializer)?;
                $type::named(&name).ok_or_else(|| serde::de::Error::unknown_variant(&name, $type::NAMES))
            }
        }
    };
}
pub(super) use named;
