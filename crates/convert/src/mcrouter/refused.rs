//! What to do about route handles without a counterpart.

use configuration::proposal;

/// The handles that are converted.
const CONVERTED: [&str; 13] = [
    "PoolRoute",
    "HashRoute",
    "PrefixSelectorRoute",
    "FailoverRoute",
    "FailoverWithExptimeRoute",
    "MissFailoverRoute",
    "WarmUpRoute",
    "AllSyncRoute",
    "AllMajorityRoute",
    "AllFastestRoute",
    "AllInitialRoute",
    "AllAsyncRoute",
    "OperationSelectorRoute",
];

/// The error for a handle of this type.
pub(super) fn advice(kind: &str) -> String {
    let advice = match kind {
        "PrefixSelectorRoute" => "works at the top only, because routes are by prefix first; move it there",
        "NullRoute" | "DevNullRoute" | "ErrorRoute" => {
            "answers without a server, which no pool does; leave its keys out, or give them a pool of one small server"
        }
        "LatestRoute" | "RandomRoute" | "LoadBalancerRoute" => {
            "sends writes to one of several servers, so replicas would differ; use it for get in an OperationSelectorRoute whose writes \
             go to all of them"
        }
        "RateLimitRoute" | "OutstandingLimitRoute" => "has no counterpart; leave it out, and see backend-window",
        "ShadowRoute" => "is not converted; leave it out here, and write shadow = { to = ..., share = ... } by hand",
        "MigrateRoute" => "changes with time; give the pool of the end here, and see warm-up for the way there",
        "ModifyKeyRoute" => {
            "is converted only around all that happens to a key: at the top, or as a policy or the wildcard of a PrefixSelectorRoute; a \
             route changes its keys for all pools"
        }
        "KeySplitRoute" => "stores a key under several names; leave it out, and see hot-keys and replicas",
        "ModifyExptimeRoute" => "changes expiry times, which clients must do",
        "BigValueRoute" => "splits large values, which the proxy never does; increase the item size of the servers",
        "Pool" => "is a list of servers and no route handle; write PoolRoute|NAME",
        _ => {
            return format!("there is no counterpart of the route handle {kind:?}{}", proposal(kind, &CONVERTED));
        }
    };
    format!("{kind} {advice}")
}
