//! Macros that declare XDR structures and enumerations.
//!
//! Each field is one line, in the order of the RFC. Reading, writing and the largest size are
//! generated from that line and thus agree.

/// Declares a structure: its fields in order (RFC 4506 §4.14).
macro_rules! xdr_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident <$lt:lifetime> {
            $( $(#[$fmeta:meta])* pub $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[$meta])*
        pub struct $name<$lt> {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        impl<$lt> $crate::Wire<$lt> for $name<$lt> {
            const MAX: usize = 0 $( + <$ty as $crate::Wire<'_>>::MAX )*;

            fn parse(r: &mut oncrpc::xdr::Reader<$lt>) -> Result<Self, oncrpc::xdr::Error> {
                Ok(Self { $( $field: $crate::Wire::parse(r)?, )* })
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                $( $crate::Wire::write(&self.$field, w); )*
            }

            #[inline]
            fn hand_over(self, w: &mut oncrpc::xdr::Writer) {
                $( $crate::Wire::hand_over(self.$field, w); )*
            }
        }

        #[cfg(test)]
        impl $crate::tests::Sample for $name<'_> {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                Self { $( $field: $crate::tests::Sample::sample(rng), )* }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$fmeta:meta])* pub $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }

        impl $crate::Wire<'_> for $name {
            const MAX: usize = 0 $( + <$ty as $crate::Wire<'_>>::MAX )*;

            fn parse(r: &mut oncrpc::xdr::Reader<'_>) -> Result<Self, oncrpc::xdr::Error> {
                Ok(Self { $( $field: $crate::Wire::parse(r)?, )* })
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                $( $crate::Wire::write(&self.$field, w); )*
            }

            #[inline]
            fn hand_over(self, w: &mut oncrpc::xdr::Writer) {
                $( $crate::Wire::hand_over(self.$field, w); )*
            }
        }

        #[cfg(test)]
        impl $crate::tests::Sample for $name {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                Self { $( $field: $crate::tests::Sample::sample(rng), )* }
            }
        }
    };
}

/// An enumeration (RFC 4506 §4.3); `$of` is its name in the RFC, for messages.
macro_rules! xdr_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident ($of:literal) {
            $( $(#[$vmeta:meta])* $variant:ident = $value:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$vmeta])* $variant = $value, )*
        }

        impl $name {
            /// Every value, in the order of the RFC.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];
        }

        impl TryFrom<u32> for $name {
            type Error = oncrpc::xdr::Error;

            fn try_from(value: u32) -> Result<Self, oncrpc::xdr::Error> {
                match value {
                    $( $value => Ok(Self::$variant), )*
                    _ => Err(oncrpc::xdr::Error::NotInEnum { value, of: $of }),
                }
            }
        }

        impl $crate::Wire<'_> for $name {
            const MAX: usize = 4;

            fn parse(r: &mut oncrpc::xdr::Reader<'_>) -> Result<Self, oncrpc::xdr::Error> {
                r.u32()?.try_into()
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                w.u32(*self as u32);
            }
        }

        #[cfg(test)]
        impl $crate::tests::Sample for $name {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                Self::ALL[rng.below(Self::ALL.len())]
            }
        }
    };
}
