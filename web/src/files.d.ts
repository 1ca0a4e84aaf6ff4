declare module "*.css";
declare module "@xterm/xterm";
declare module "@xterm/addon-fit";
declare module "uplot";
// EXPORTED is true in the page of "berth ui --export", which has no server. The build sets it.
declare const EXPORTED: boolean;
