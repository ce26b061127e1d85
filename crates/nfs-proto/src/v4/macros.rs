//! Macros that declare unions, flags and numbers of NFS version 4, beside those of structures and
//! enumerations.

/// Binds a name in a pattern. The type only makes the pattern part of the repetition of an optional
/// payload.
macro_rules! bound {
    ($name:pat, $ty:ty) => {
        $name
    };
}

/// Declares a discriminated union (RFC 4506 §4.15): each arm has a value, and data or none. `$of` is
/// the name of the discriminant's type in the RFC, for messages.
macro_rules! xdr_union {
    (
        $(#[$meta:meta])*
        pub enum $name:ident <$lt:lifetime> ($of:literal) { $($arms:tt)* }
    ) => {
        xdr_union! { @ $(#[$meta])* $name [<$lt>] $lt $of { $($arms)* } }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident ($of:literal) { $($arms:tt)* }
    ) => {
        xdr_union! { @ $(#[$meta])* $name [] 'a $of { $($arms)* } }
    };
    (
        @ $(#[$meta:meta])* $name:ident [$($generics:tt)*] $lt:lifetime $of:literal {
            $( $(#[$vmeta:meta])* $variant:ident $(($ty:ty))? = $value:literal, )*
        }
    ) => {
        $(#[$meta])*
        pub enum $name $($generics)* {
            $( $(#[$vmeta])* $variant $(($ty))?, )*
        }

        impl<$lt> $crate::Wire<$lt> for $name $($generics)* {
            const MAX: usize = 4 + $crate::v4::largest(&[
                0, $( $( <$ty as $crate::Wire<'_>>::MAX, )? )*
            ]);

            fn parse(r: &mut oncrpc::xdr::Reader<$lt>) -> Result<Self, oncrpc::xdr::Error> {
                Ok(match r.u32()? {
                    $( $value => Self::$variant $( (<$ty as $crate::Wire<$lt>>::parse(r)?) )?, )*
                    value => return Err(oncrpc::xdr::Error::NotInEnum { value, of: $of }),
                })
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                match self {
                    $( Self::$variant $( (bound!(value, $ty)) )? => {
                        w.u32($value);
                        $( <$ty as $crate::Wire<'_>>::write(value, w); )?
                    } )*
                }
            }

            fn hand_over(self, w: &mut oncrpc::xdr::Writer) {
                match self {
                    $( Self::$variant $( (bound!(value, $ty)) )? => {
                        w.u32($value);
                        $( <$ty as $crate::Wire<'_>>::hand_over(value, w); )?
                    } )*
                }
            }
        }

        #[cfg(test)]
        impl<$lt> $crate::tests::Sample for $name $($generics)* {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                const VALUES: &[u32] = &[$($value),*];
                match VALUES[rng.below(VALUES.len())] {
                    $( $value => Self::$variant $( (<$ty as $crate::tests::Sample>::sample(rng)) )?, )*
                    _ => unreachable!("one of the values"),
                }
            }
        }
    };
}

/// Declares 32 bits of flags. Unknown bits are kept.
macro_rules! flags {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$($fmeta:tt)*])* const $flag:ident = $value:expr; )*
        }
    )*) => {$(
        bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u32 {
                $( $(#[$($fmeta)*])* const $flag = $value; )*
            }
        }

        impl $crate::Wire<'_> for $name {
            const MAX: usize = 4;

            fn parse(r: &mut oncrpc::xdr::Reader<'_>) -> Result<Self, oncrpc::xdr::Error> {
                r.u32().map(Self::from_bits_retain)
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                w.u32(self.bits());
            }
        }

        #[cfg(test)]
        impl $crate::tests::Sample for $name {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                Self::from_bits_retain($crate::tests::Sample::sample(rng))
            }
        }
    )*};
}

/// Declares newtypes of numbers.
macro_rules! numbers {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident($ty:ty);
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $ty);

        impl $crate::Wire<'_> for $name {
            const MAX: usize = <$ty as $crate::Wire<'_>>::MAX;

            fn parse(r: &mut oncrpc::xdr::Reader<'_>) -> Result<Self, oncrpc::xdr::Error> {
                $crate::Wire::parse(r).map(Self)
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                $crate::Wire::write(&self.0, w);
            }
        }

        #[cfg(test)]
        impl $crate::tests::Sample for $name {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                Self($crate::tests::Sample::sample(rng))
            }
        }
    )*};
}

/// Declares opaque data of fixed length (RFC 4506 §4.9).
macro_rules! fixed_opaque {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident([u8; $len:literal]);
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $crate::Wire<'_> for $name {
            const MAX: usize = oncrpc::xdr::padded($len);

            fn parse(r: &mut oncrpc::xdr::Reader<'_>) -> Result<Self, oncrpc::xdr::Error> {
                r.fixed().map(Self)
            }

            fn write(&self, w: &mut oncrpc::xdr::Writer) {
                w.fixed(&self.0);
            }
        }

        #[cfg(test)]
        impl $crate::tests::Sample for $name {
            fn sample(rng: &mut $crate::tests::Rng) -> Self {
                Self(std::array::from_fn(|_| <u32 as $crate::tests::Sample>::sample(rng).to_be_bytes()[0]))
            }
        }
    )*};
}

/// Declares the operations of a program: for each its name, arguments, number and result. `$of` is the
/// name of their enumeration in the RFC.
macro_rules! operations {
    (
        numbers $(#[$nmeta:meta])* $numbers:ident ($of:literal);
        arguments $(#[$ameta:meta])* $arguments:ident;
        results $(#[$rmeta:meta])* $results:ident;
        $( $(#[$meta:meta])* $variant:ident $(($args:ty))? = $number:literal => $result:ty; )*
    ) => {
        xdr_enum! {
            $(#[$nmeta])*
            pub enum $numbers ($of) {
                $( $(#[$meta])* $variant = $number, )*
            }
        }

        xdr_union! {
            $(#[$ameta])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub enum $arguments<'a> ($of) {
                $( $(#[$meta])* $variant $(($args))? = $number, )*
            }
        }

        xdr_union! {
            $(#[$rmeta])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub enum $results<'a> ($of) {
                $( $(#[$meta])* $variant($result) = $number, )*
            }
        }

        impl $arguments<'_> {
            /// Returns the number of the operation.
            pub fn number(&self) -> $numbers {
                match self {
                    $( Self::$variant $( (bound!(_, $args)) )? => $numbers::$variant, )*
                }
            }
        }

        impl $results<'_> {
            /// Returns the number of the operation.
            pub fn number(&self) -> $numbers {
                match self {
                    $( Self::$variant(_) => $numbers::$variant, )*
                }
            }

            /// Returns the status of the operation.
            pub fn status(&self) -> Result<(), $crate::v4::Status> {
                match self {
                    $( Self::$variant(result) => $crate::v4::status::Outcome::status(result), )*
                }
            }

            /// Creates the result of an operation that failed, without further data.
            pub fn failed(number: $numbers, status: $crate::v4::Status) -> Self {
                match number {
                    $( $numbers::$variant => {
                        Self::$variant($crate::v4::status::Outcome::failed(status))
                    } )*
                }
            }
        }

        #[cfg(test)]
        impl<'a> $arguments<'a> {
            /// Random arguments of an operation.
            pub(crate) fn sample_of(number: $numbers, rng: &mut $crate::tests::Rng) -> Self {
                // Without arguments there is nothing random.
                let _ = &rng;
                match number {
                    $( $numbers::$variant => {
                        Self::$variant $( (<$args as $crate::tests::Sample>::sample(rng)) )?
                    } )*
                }
            }
        }

        #[cfg(test)]
        impl $results<'_> {
            /// A random result of an operation.
            pub(crate) fn sample_of(number: $numbers, rng: &mut $crate::tests::Rng) -> Self {
                match number {
                    $( $numbers::$variant => {
                        Self::$variant($crate::tests::Sample::sample(rng))
                    } )*
                }
            }
        }
    };
}
