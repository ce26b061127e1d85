//! Software RNIC: iWARP over TCP sockets.
