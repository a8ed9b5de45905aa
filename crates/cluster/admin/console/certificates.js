// Certificates of this node, of other nodes and of authorities, as rows of a table.

/** Certificates as rows, from `/certificates` and `/certificates/nodes`. */
export function certificateRows(own, nodes) {
  const row = (name, use, certificate, fault = null) => ({
    name, use, fault,
    endsMs: certificate?.not_after_ms ?? null,
    daysLeft: certificate ? (certificate.not_after_ms - Date.now()) / 86_400_000 : null,
    holder: certificate?.name ?? "",
    serial: certificate?.serial ?? "",
  });
  const listeners = (own?.listeners ?? []).map((it) => row(`listener ${it.listener}`, "clients", it.certificate));
  const all = own?.cluster?.authorities ?? [];
  const ofAuthorities = all.map((it, at) => row(all.length > 1 ? `certificate authority ${at + 1}` : "certificate authority", "issuing certificates", it));
  const ofNodes = (nodes?.nodes ?? []).map((it) => row(`node ${it.node}`, "links", it.certificate, it.fault));
  const mine = !nodes && own?.cluster ? [row("this node", "links", own.cluster.certificate)] : [];
  return [...ofNodes, ...mine, ...ofAuthorities, ...listeners];
}
