//! Setters of configurations.

/// Declares a method for each field of a configuration that sets this field, so that a `#[non_exhaustive]` struct
/// can be written in one expression. Shared by the crates of this workspace, all of which use this one; not
/// part of its interface.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($($method:ident($field:ident: $kind:ty),)+) => {
        $(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $method(mut self, $field: $kind) -> Self {
                self.$field = $field.into();
                self
            }
        )+
    };
}
