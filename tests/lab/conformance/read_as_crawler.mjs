// Runs beside the package @agentcash/discovery: reads an origin as the crawlers of its registry do.
// In:  the origin.
// Out: {"routes": [{"path": "…", "mode": "paid", "price": "…", "protocols": ["x402"]}, …], "warnings": [{"severity": "…", "code": "…", "message": "…"}, …]}
import {
  checkEndpointSchema, checkL2ForOpenAPI, checkL4ForOpenAPI, getOpenAPI,
  getWarningsForL2, getWarningsForL3, getWarningsForL4, getWarningsForOpenAPI,
} from "@agentcash/discovery";

const origin = process.argv[2];
const document = (await getOpenAPI(origin)).unwrapOr(null);
const routes = checkL2ForOpenAPI(document);
const warnings = [...getWarningsForOpenAPI(document), ...getWarningsForL2(routes), ...getWarningsForL4(checkL4ForOpenAPI(document))];
for (const { path } of routes.routes) {
  const url = origin + path.replace("{cve_id}", "CVE-2021-44228").replace("{date}", "2026-01-31");
  const { advisories = [] } = await checkEndpointSchema({ url, probe: true });
  warnings.push(...advisories.flatMap((one) => getWarningsForL3(one).map((warning) => ({ ...warning, path }))));
}
const shown = routes.routes.map(({ path, authMode, price, protocols }) => ({ path, mode: authMode ?? null, price: price ?? null, protocols: protocols ?? [] }));
console.log(JSON.stringify({ routes: shown, warnings: warnings.map(({ severity, code, message, path }) => ({ severity, code, message, path })) }));
